"""A golden case in terms of this package: rows with question ids -> parts and [Q, N, T] arrays."""

import copy

import jax
import jax.numpy as jnp

from disco_jax.objective.objective import Objective, compare, loss, make_objective, select
from disco_jax.types import Batch

BY_NAME = {  # what a method's name says of its parts; the hyperparameters say the rest
    "paper_grpo": {"weight": "std"},
    "paper_grpo_er": {"weight": "std"},
    "paper_dr_grpo": {"weight": "var"},
    "paper_dapo": {"weight": "std", "length": "group"},
    "paper_gpg": {"score": "log_l", "length": "group"},
    "paper_trpa": {"score": "log_ratio_ref", "length": "none"},
    "official_grpo": {"questions": "sized"},
    "official_ppo": {"questions": "sized", "length": "batch"},
}
BY_HYPERPARAMETER = {
    "eps": ("score", "clipped_ratio(low={eps}, high={eps})"),
    "eps_low": ("score", "clipped_ratio(low={eps_low}, high={eps_high})"),
    "cliprange": ("score", "clipped_ratio(low={cliprange}, high={cliprange})"),
    "tau": ("surrogate", "dro(tau={tau})"),
    "margin": ("surrogate", "squared_hinge(margin={margin})"),
    "beta_dpo": ("surrogate", "logistic(beta={beta_dpo})"),
    "alpha": ("weight", "var(alpha={alpha})"),
    "adv_epsilon": ("weight", "std(ddof=1, eps={adv_epsilon})"),
    "norm_const": ("length", "constant(tokens={norm_const})"),
    "beta_ref": ("penalty", "kl_ref(beta={beta_ref}, mean='responses')"),
    "kl_loss_coef": ("penalty", "kl_ref(beta={kl_loss_coef})"),
    "lambda_kl": ("penalty", "kl_old(beta={lambda_kl})"),
    "delta": ("penalty", "squared_hinge(beta={beta}, delta={delta}, estimator={estimator!r})"),
}


class Case:
    """A golden case: its arrays at one precision, and the parts its method is made of."""

    def __init__(self, method: str, h: dict, arrays: dict, score: str):
        """`score` is for methods whose name and hyperparameters do not imply one."""
        self.method, self.h, self.arrays = method, h, arrays
        self.parts = {"weight": "one", "score": score, "length": "response", "surrogate": "gap"}
        self.parts |= {"penalty": "none", "entropy": h.get("entropy_coef", 0.0), "questions": "all"}
        if h.get("ell") == "logistic":
            self.parts["surrogate"] = "logistic"
        estimator = "k3" if h.get("kl_type") == "low_var_kl" else "k1"
        said = [part for key, part in BY_HYPERPARAMETER.items() if key in h]
        self.parts |= {slot: text.format(**h, estimator=estimator) for slot, text in said}
        self.parts |= BY_NAME.get(method, {})
        self.policy = arrays["logits" if "logits" in arrays else "new_logp"]
        uids = arrays["uid"].tolist()
        self.uid_Q = sorted(set(uids))
        self.question_B = jnp.asarray([self.uid_Q.index(uid) for uid in uids])
        self.place_B = jnp.asarray([uids[:b].count(uid) for b, uid in enumerate(uids)])
        self.size = max(map(uids.count, self.uid_Q))
        self.known = {}

    def vary(self, **change) -> "Case":
        varied = copy.copy(self)
        varied.parts = self.parts | change
        return varied

    def take(self, rows: slice) -> "Case":
        """The case of some of the rows alone."""
        names = ("new_logp", "old_logp", "mask", "reward", "uid")
        arrays = {name: self.arrays[name][rows] for name in names}
        return Case(self.method, self.h, arrays, self.parts["score"])

    @property
    def made(self) -> Objective:
        return make_objective(**self.parts)

    def grid(self, x_B, missing=jnp.nan):
        """Rows -> [Q, N, ...]; the cells that no row fills are `missing`."""
        if x_B is None:
            return None
        shape = (len(self.uid_Q), self.size, *x_B.shape[1:])
        return jnp.full(shape, missing, x_B.dtype).at[self.question_B, self.place_B].set(x_B)

    def tokens(self, policy):
        """Log-probability and entropy of every token, from logits where those are given."""
        if "logits" not in self.arrays:
            return policy, None
        logp_BTV = jax.nn.log_softmax(policy / self.h["temperature"])
        logp_BT = jnp.take_along_axis(logp_BTV, self.arrays["tokens"][..., None], -1)[..., 0]
        return logp_BT, -(jnp.exp(logp_BTV) * logp_BTV).sum(-1)

    def given(self, policy=None):
        """logp_QNT, batch, entropy_QNT: what an objective is given."""
        policy = self.policy if policy is None else policy
        mask_QNT = self.grid(self.arrays["mask"] > 0, False)
        names = ("reward", "old_logp", "ref_logp")
        batch = Batch(mask_QNT, *(self.grid(self.arrays.get(name)) for name in names))
        logp_BT, entropy_BT = self.tokens(policy)
        return self.grid(logp_BT), batch, self.grid(entropy_BT)

    def selected(self, policy=None):
        return select(*self.given(policy)[:2])

    def once(self, key, function):
        """function(self), remembered: one trace of a loss serves all fields made of it."""
        if key not in self.known:
            self.known[key] = function(self)
        return self.known[key]

    def loss(self, made: Objective | None = None):
        """Loss and gradient by rows; of the case's own parts unless another objective is given."""
        if made is None:
            return self.once(str(self.parts), lambda case: case.loss(case.made))
        return jax.value_and_grad(lambda policy: loss(made, *self.given(policy))[0])(self.policy)

    def kl(self, policy=None):
        """The penalty's estimate."""
        return self.made.penalty.kl(*self.selected(policy))

    def compare(self):
        return compare(self.made, *self.selected())

"""The methods of Tables 1 and 6 of the DisCO paper, as data.

    J(theta) = E_q w(p) D(s+, s-)  -  penalty  +  entropy * H        (to be maximised)

Each entry but the entropy coefficient is a call-like string, looked up in the table of the file
that owns it: weights, scores (score and length), surrogates, penalties. An ablation is a row with
one entry changed. docs/objectives.md sets the rows beside the paper's tables.
"""

# fmt: off
METHODS: dict[str, dict] = {
    # Eqs. 2-5; section 6: eps 0.2, KL coefficient 0.001.
    "grpo": {"weight": "std", "score": "clipped_ratio(low=0.2, high=0.2)", "length": "response",
             "surrogate": "gap", "penalty": "kl_ref(beta=1e-3)", "entropy": 0.0},
    # Section 6, "GRPO-ER": with an entropy bonus.
    "grpo_er": {"weight": "std", "score": "clipped_ratio(low=0.2, high=0.2)", "length": "response",
                "surrogate": "gap", "penalty": "kl_ref(beta=1e-3)", "entropy": 1e-3},
    # Eq. 6: without the difficulty weight.
    "grpo_rw": {"weight": "one", "score": "clipped_ratio(low=0.2, high=0.2)", "length": "response",
                "surrogate": "gap", "penalty": "kl_ref(beta=1e-3)", "entropy": 0.0},
    # Eqs. 18-19. Implementations divide the token sums: length="constant(tokens=8192)".
    "dr_grpo": {"weight": "var", "score": "clipped_ratio(low=0.2, high=0.2)", "length": "none",
                "surrogate": "gap", "penalty": "none", "entropy": 0.0},
    # Eq. 20. Its own code's mean over all tokens is length="batch" with questions="sized".
    "dapo": {"weight": "std", "score": "clipped_ratio(low=0.2, high=0.28)", "length": "group",
             "surrogate": "gap", "penalty": "none", "entropy": 0.0},
    # Eq. 21. Its alpha, all responses over those of mixed groups, is what questions="valid" does.
    "gpg": {"weight": "var(alpha=1.0)", "score": "log_l", "length": "group",
            "surrogate": "gap", "penalty": "none", "entropy": 0.0},
    # Table 6. The paper gives neither its beta nor its KL coefficient.
    "trpa": {"weight": "one", "score": "log_ratio_ref", "length": "none",
             "surrogate": "logistic(beta=0.1)", "penalty": "kl_old(beta=1e-3)", "entropy": 0.0},
    # DisCO-b, eqs. 7-9; section 6: beta 1e3, delta 1e-4.
    "disco_b_logl": {"weight": "one", "score": "log_l", "length": "response", "surrogate": "gap",
                     "penalty": "squared_hinge(beta=1e3, delta=1e-4)", "entropy": 0.0},
    "disco_b_lratio": {"weight": "one", "score": "l_ratio", "length": "response",
                       "surrogate": "gap",
                       "penalty": "squared_hinge(beta=1e3, delta=1e-4)", "entropy": 0.0},
    # DisCO, eqs. 10-11; section 6: tau 10 for log-L, 1 for L-ratio.
    "disco_logl": {"weight": "one", "score": "log_l", "length": "response",
                   "surrogate": "dro(tau=10.0)",
                   "penalty": "squared_hinge(beta=1e3, delta=1e-4)", "entropy": 0.0},
    "disco_lratio": {"weight": "one", "score": "l_ratio", "length": "response",
                     "surrogate": "dro(tau=1.0)",
                     "penalty": "squared_hinge(beta=1e3, delta=1e-4)", "entropy": 0.0},
}

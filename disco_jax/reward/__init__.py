"""Text in, 0 or 1 out: the answer grader.

    with Grader('math(think="none")') as grader:
        verdicts = grader.grade([(response, golds), ...])

`policies` says which rewards there are, `answer` how an answer is found, `equivalence` when two
answers agree (with the table of conventions), `pool` how grading stays bounded.
"""

from disco_jax.reward.guard import grade, self_check
from disco_jax.reward.pool import Grader
from disco_jax.reward.verdict import Outcome, Verdict

__all__ = ["Grader", "Outcome", "Verdict", "grade", "self_check"]

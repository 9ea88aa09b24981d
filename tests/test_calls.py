import pytest

from disco_jax import calls


def dro(tau, negatives="mean"):
    if tau <= 0:
        raise ValueError(f"tau={tau} must be above 0")
    return ("dro", tau, negatives)


TABLE = {"dro": dro, "gap": lambda: "gap"}


def test_names_and_keyword_literals():
    assert calls.parse("gap") == ("gap", {})
    assert calls.parse(" dro(tau=1e1, negatives='sum') ") == (
        "dro",
        {"tau": 10.0, "negatives": "sum"},
    )
    assert calls.build("dro(tau=2)", TABLE, "surrogate") == ("dro", 2, "mean")
    assert calls.build("gap", TABLE, "surrogate") == "gap"


@pytest.mark.parametrize(
    "text",
    ["", "dro(", "dro(10)", "a.b(tau=1)", "dro(tau=1)(tau=2)", "x = 1", "dro(**{})", "(" * 500],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="is not a name or a call"):
        calls.parse(text)


@pytest.mark.parametrize("value", ["open('x')", "__import__('os')", "1 if x else 2", "tau"])
def test_only_literals_are_values(value):
    with pytest.raises(ValueError, match="is not a literal"):
        calls.parse(f"dro(tau={value})")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dor(tau=1)", r"no surrogate 'dor' \(did you mean 'dro'\?\). One of: dro, gap"),
        (
            "dro(tua=1)",
            r"no parameter 'tua' \(did you mean 'tau'\?\). Takes: dro\(tau, negatives=mean\)",
        ),
        ("dro", "the parameter 'tau' is missing. Takes: dro"),
        ("gap(tau=1)", "no parameter 'tau'. Takes: gap"),
        ("dro(tau=0)", "surrogate='dro\\(tau=0\\)': tau=0 must be above 0"),
    ],
)
def test_errors_name_what_is_accepted(text, message):
    with pytest.raises(ValueError, match=message):
        calls.build(text, TABLE, "surrogate")

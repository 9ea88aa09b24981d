r"""One spelling for what is written in many: unicode, delimiters, sizes, wrappers, full stops.

`clean` keeps meaning: spaces between digits stay, braces stay, text stays marked as text.
"""

import re
import unicodedata

_SUPER = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUB = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙ", "0123456789+-()n", strict=True))
_GREEK = {
    chr(code): f"\\{name} "
    for start, names in (
        (
            0x3B1,
            "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi "
            "rho varsigma sigma tau upsilon phi chi psi omega",
        ),
        (0x393, "Gamma Delta"),
        (0x398, "Theta"),
        (0x39B, "Lambda"),
        (0x39E, "Xi"),
        (0x3A0, "Pi"),
        (0x3A3, "Sigma"),
        (0x3A6, "Phi"),
        (0x3A8, "Psi Omega"),
    )
    for code, name in enumerate(names.split(), start)
}
_SIGNS = {
    **dict.fromkeys("−–—‐‑﹣", "-"),
    **dict.fromkeys("×✕✖⨯", "\\times "),
    **dict.fromkeys("·⋅∙•∗", "\\cdot "),
    **dict.fromkeys("’′‘", "'"),
    **dict.fromkeys("″”“", "''"),
    **dict.fromkeys("∕⁄", "/"),
    **dict.fromkeys("、﹐", ","),
    **dict.fromkeys("\u2009\u202f\u2006\u200a", "\\,"),
    **dict.fromkeys("\u200b\u200c\u200d\ufeff\u2060\u2061\u2062\u00ad", ""),
    **dict.fromkeys("°˚º", "^{\\circ}"),
    "÷": "\\div ", "±": "\\pm ", "∓": "\\mp ", "∞": "\\infty ", "≤": "\\le ", "≥": "\\ge ",
    "⩽": "\\le ", "⩾": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "≡": "\\equiv ", "∈": "\\in ",
    "∪": "\\cup ", "∩": "\\cap ", "∖": "\\setminus ", "∅": "\\emptyset ", "⌀": "\\emptyset ",
    "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}", "ℚ": "\\mathbb{Q}",
    "ℂ": "\\mathbb{C}", "√": "\\sqrt ", "∛": "\\sqrt[3] ", "∜": "\\sqrt[4] ", "⌊": "\\lfloor ",
    "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ", "⟨": "\\langle ", "⟩": "\\rangle ",
    "∠": "\\angle ", "∨": "\\lor ", "∧": "\\land ", "∑": "\\sum ", "∏": "\\prod ", "。": ".",
    "…": "\\ldots ", "℃": "^{\\circ}\\mathrm{C}", "℉": "^{\\circ}\\mathrm{F}", "ϕ": "\\phi ",
    "ϵ": "\\epsilon ", "ℏ": "\\hbar ", "ℓ": "\\ell ", "‖": "\\|", "％": "\\%",
}  # fmt: skip
_TABLE = str.maketrans(_GREEK | _SIGNS)

_SUPER_RUN = re.compile(f"[{''.join(_SUPER)}]+")
_SUB_RUN = re.compile(f"[{''.join(_SUB)}]+")
_DELIMITERS = re.compile(r"(\\\\)|\\[()\[\]]|(\\\$)|\$")
_SIZES = re.compile(r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*(\.)?")
_STYLES = re.compile(
    r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|mathstrut|centering|bf|rm|it|tt|sf"
    r"|large|Large|normalsize|small|boldmath|nonumber|notag|strut|allowbreak|nobreak)(?![A-Za-z])"
)
_DROPPED = re.compile(
    r"\\(?:[hv]?phantom|[hv]space\*?|label|tag\*?|color|kern|mkern|mspace)\s*\{[^{}]*\}"
)
_COLOURED = re.compile(r"\\(?:textcolor|colorbox)\s*\{[^{}]*\}")
_COMMENT = re.compile(r"(?<=\s)%\s*[A-Za-z][^\n]*")
_LONE_SIGN = re.compile(r"\{([:=<>+-])\}")
_ELLIPSIS = re.compile(r"=\s*(-?\d*\.\d+)\s*(?:\.\.\.|\\[lc]?dots)\s*$")
_FOR_ALL = re.compile(
    r"(?:,?\s*(?:(?:\\q?quad|\\[,;: ])\s*)*"
    r"(?:\\(?:text|mbox)\s*\{\s*,?\s*for (?:all|every|any|each)\b|\bfor (?:all|every|any|each)\b"
    r"|\\forall(?![A-Za-z]))).*$",
    re.DOTALL,
)
_UNEQUAL = re.compile(r"(?<=\s)!=")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z{}])")  # a backslash escaped once too often
_CHOOSE = re.compile(r"(?:\{\}\s*)?[_^]\s*\{?(\d+)\}?\s*(?:\\mathrm\s*\{C\}|C)\s*_\s*\{?(\d+)\}?")
_SLANTED = re.compile(  # {}^{3}/_{4}
    r"(?<![\w)}\]])(?:\{\}\s*)?\^\s*\{?(\d+)\}?\s*(?:\\!\s*)*/\s*(?:\\!\s*)*_\s*\{?(\d+)\}?"
)
_DIGITS_IN_TEXT = re.compile(  # \text{2A}_{16}, 2\mathrm{A}_{16}; not \mathrm{C}_{2}
    r"(?:(?<=\d)|(?=\\[a-z]+\s*\{\s*[A-F]*\d))"
    r"\\(?:text|math)(?:rm|tt|bf|sf|it)?\s*\{\s*([0-9A-F]+)\s*\}(?=\s*_)"
)
_BRACKETED_DIGITS = re.compile(r"(?<![\w}])\(\s*([A-F]*\d[0-9A-F]*)\s*\)(?=\s*_\s*\{?\s*\d)")
_LONG_SPACE = re.compile(r"\s{4,}")  # the patterns here backtrack over white space
_CLOCK = re.compile(r"\b([ap])\.\s?m\b\.?", re.IGNORECASE)


def clean(text: str) -> str:
    """The text in plain ASCII LaTeX where it has such a spelling; linear in its length."""
    if not text.isascii():
        text = _ascii(text)
    text = _DELIMITERS.sub(lambda m: m.group(1) or m.group(2) or " ", text)
    text = _LONG_SPACE.sub(lambda m: "\n" if "\n" in m.group() else "  ", text)
    text = _SIZES.sub("", text)
    text = _STYLES.sub(" ", text)
    text = _COLOURED.sub("", _DROPPED.sub("", text))
    text = _COMMENT.sub("", text)
    text = _FOR_ALL.sub("", text)
    text = _ELLIPSIS.sub(r"\\approx \1", text)
    text = _SLANTED.sub(r"\\frac{\1}{\2}", text)
    text = _BRACKETED_DIGITS.sub(r"\1", _DIGITS_IN_TEXT.sub(r"\1", text))
    text = _CHOOSE.sub(r"\\binom{\1}{\2}", text.replace("\\colon", ":"))
    text = _UNEQUAL.sub(r"\\ne ", text)
    if "\\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    text = _LONE_SIGN.sub(r"\1", text)
    text = _CLOCK.sub(r"\1m", text)
    text = text.replace("\\!", "\\! ").replace("**", "^") if not _bold(text) else _unbold(text)
    return _strip(text)


def _ascii(text: str) -> str:
    text = _SUPER_RUN.sub(lambda m: "^{" + "".join(_SUPER[c] for c in m.group()) + "}", text)
    text = _SUB_RUN.sub(lambda m: "_{" + "".join(_SUB[c] for c in m.group()) + "}", text)
    return "".join(_character(c) if not c.isascii() else c for c in text.translate(_TABLE))


def _character(c: str) -> str:
    """Full-width forms, vulgar fractions, spaces; anything else stays as it is."""
    if "\uff01" <= c <= "\uff5e":
        return chr(ord(c) - 0xFEE0)
    flat = unicodedata.normalize("NFKC", c)
    top, slash, bottom = flat.partition("\u2044")
    if slash and top.isdigit() and bottom.isdigit():
        return f"\\frac{{{top}}}{{{bottom}}}"
    if c.isspace():
        return " "
    if len(flat) == 1 and flat.isascii() and flat.isalnum():
        return flat  # mathematical alphabets
    return c


def _bold(text: str) -> bool:
    bare = text.strip()
    return len(bare) > 4 and bare.startswith("**") and bare.endswith("**")


def _unbold(text: str) -> str:
    return text.strip()[2:-2].replace("**", "^")


def _strip(text: str) -> str:
    """Without outer white space, backquotes and the punctuation that ends a sentence."""
    before = None
    while before != text:
        before = text
        text = text.strip(" \t\r\n`~")
        text = text.rstrip("\\")
        if text.endswith((".", ";", ",", ":")) and not text.endswith(("..", "\\;", "\\,", "\\:")):
            text = text[:-1]
    return text


def squash(text: str) -> str:
    """A key under which equal spellings are equal: cleaned, spaces kept only between two digits
    or two letters (`2 9` is not `29`), outer braces gone."""
    text = re.sub(r"\\[,;:!> ]|~|\\q?quad(?![A-Za-z])", " ", clean(text))
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"([\^_])\s*\{\s*(\w)\s*\}", r"\1\2", text)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])", "", text)
    while text.startswith("{") and text.endswith("}") and _one_group(text):
        text = text[1:-1]
    return text


def _one_group(text: str) -> bool:
    depth = 0
    for position, c in enumerate(text):
        depth += (c == "{") - (c == "}")
        if depth == 0:
            return position == len(text) - 1
    return False

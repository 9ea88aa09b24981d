"""The words a grader must know: units, phrases, hedges, labels. Tables, no logic but look-ups."""

# Spellings of a unit -> its key. Products, quotients and powers are built from these.
_UNITS = {
    "m": "meter metre meters metres m",
    "cm": "centimeter centimetre centimeters centimetres cm cms",
    "mm": "millimeter millimetre millimeters millimetres mm",
    "km": "kilometer kilometre kilometers kilometres km kms",
    "nm": "nanometer nanometre nanometers nanometres nm",
    "um": "micrometer micrometre micrometers micrometres micron microns um",
    "in": "inch inches in",
    "ft": "foot feet ft",
    "yd": "yard yards yd yds",
    "mi": "mile miles mi",
    "s": "second seconds sec secs s",
    "ms": "millisecond milliseconds ms",
    "min": "minute minutes min mins",
    "h": "hour hours hr hrs h",
    "day": "day days d",
    "week": "week weeks wk wks",
    "month": "month months mo",
    "yr": "year years yr yrs",
    "g": "gram grams gramme grammes g gm",
    "kg": "kilogram kilograms kilo kilos kg kgs",
    "mg": "milligram milligrams mg",
    "lb": "pound pounds lb lbs",
    "oz": "ounce ounces oz",
    "ton": "ton tons tonne tonnes",
    "L": "liter litre liters litres l L",
    "mL": "milliliter millilitre milliliters millilitres ml mL",
    "gal": "gallon gallons gal",
    "J": "joule joules J",
    "kJ": "kilojoule kilojoules kJ",
    "cal": "calorie calories cal",
    "kcal": "kilocalorie kilocalories kcal",
    "eV": "electronvolt electronvolts eV",
    "keV": "keV",
    "MeV": "MeV",
    "GeV": "GeV",
    "erg": "erg ergs",
    "dyn": "dyne dynes dyn",
    "W": "watt watts W",
    "kW": "kilowatt kilowatts kW",
    "MW": "megawatt megawatts MW",
    "N": "newton newtons N",
    "Pa": "pascal pascals Pa",
    "kPa": "kilopascal kilopascals kPa",
    "MPa": "MPa",
    "GPa": "GPa",
    "atm": "atmosphere atmospheres atm",
    "V": "volt volts V",
    "mV": "millivolt millivolts mV",
    "A": "ampere amperes amp amps A",
    "mA": "milliampere milliamperes mA",
    "ohm": "ohm ohms",
    "C": "coulomb coulombs C",
    "F": "farad farads F",
    "T": "tesla teslas T",
    "Hz": "hertz Hz",
    "kHz": "kilohertz kHz",
    "MHz": "megahertz MHz",
    "GHz": "gigahertz GHz",
    "K": "kelvin kelvins K",
    "degC": "celsius",
    "degF": "fahrenheit",
    "mol": "mole moles mol",
    "M": "molar M",
    "AA": "angstrom angstroms",
    "pc": "parsec parsecs pc",
    "kpc": "kiloparsec kiloparsecs kpc",
    "Mpc": "megaparsec megaparsecs Mpc",
    "AU": "AU au",
    "rad": "radian radians rad rads",
    "deg": "degree degrees deg degs",
    "usd": "dollar dollars usd USD buck bucks",
    "cent": "cent cents",
    "eur": "euro euros eur EUR",
    "gbp": "gbp GBP",
    "arcsec": "arcsecond arcseconds arcsec",
    "arcmin": "arcminute arcminutes arcmin",
}
UNITS = {spelling: key for key, line in _UNITS.items() for spelling in line.split()}
COMPOUND = {
    "mph": (("h", -1), ("mi", 1)),
    "kph": (("h", -1), ("km", 1)),
    "kmh": (("h", -1), ("km", 1)),
    "mps": (("m", 1), ("s", -1)),
    "fps": (("ft", 1), ("s", -1)),
}
CURRENCY = {"\\$": "usd", "$": "usd", "\\euro": "eur", "€": "eur", "¢": "cent", "\\pounds": "gbp",
            "£": "gbp", "¥": "jpy", "\\yen": "jpy", "₹": "inr", "₩": "krw"}  # fmt: skip
POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
NO_UNIT = {"unit", "units"}
PERCENT = frozenset("percent percents percentage pct".split())
MULTIPLIERS = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}

# A text with one of these beside a value says several things, or says it with a condition.
HEDGES = frozenset(
    "or if otherwise else perhaps maybe possibly probably either neither nor but not unless when "
    "whenever where least most between to from than except without alternatively any either/or "
    "respectively versus vs unknown unsure guess".split()
)
ARTICLES = frozenset({"a", "an", "the"})
APPROXIMATE = frozenset("approximately about roughly around circa nearly".split())
LABELS = frozenset(
    "max maximum min minimum mean median mode range area perimeter volume length width height sum "
    "product total first second third part case largest smallest greatest least".split()
)
LEAD_INS = frozenset(
    "the final answer answers ans is are equals equal to thus so therefore hence we get have "
    "option choice correct value solution result 答案 答案是 答案为 答 所以 因此 故".split()
)
CONNECTIVES = {"and": "and", "or": "or", "\\land": "and", "\\lor": "or", "\\wedge": "and",
               "\\vee": "or", "和": "and", "或": "or", "&": "and"}  # fmt: skip

# Phrases that mean the same thing: the words after articles and full stops are gone.
_PHRASES = {
    "empty": (
        "no solution", "no solutions", "no real solution", "no real solutions", "none exist",
        "there is no solution", "there are no solutions", "there is no real solution",
        "there are no real solutions", "no such number", "no such numbers", "no such",
        "there is no such", "there are no such", "none exists", "empty set", "no answer",
        "no integer solution", "no integer solutions", "no roots", "no real roots", "null set",
        "has no solution", "has no solutions", "no possible value", "no possible values", "none",
    ),
    "reals": (
        "all real numbers", "all reals", "all real", "set of all real numbers", "real numbers",
        "all real x", "any real number", "every real number", "all real values", "set of reals",
        "set of real numbers", "reals",
    ),
    "integers": ("all integers", "set of integers", "set of all integers", "any integer"),
    "dne": ("dne", "does not exist", "doesnt exist", "do not exist", "limit does not exist"),
    "infinite": (
        "infinitely many", "infinitely many solutions", "infinite solutions", "infinite number",
        "infinite number of solutions", "infinite many", "infinitely many values",
    ),
    "inf": ("infinity", "positive infinity"),
}  # fmt: skip
PHRASES = {phrase: key for key, phrases in _PHRASES.items() for phrase in phrases}

MONTHS = {
    name: number
    for number, names in enumerate(
        "january jan|february feb|march mar|april apr|may|june jun|july jul|august aug|"
        "september sep sept|october oct|november nov|december dec".split("|"),
        1,
    )
    for name in names.split()
}
BASES = {
    name: number
    for number, name in enumerate(
        "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen".split(),
        2,
    )
}
# Short words that are words also outside \text{}: letters elsewhere are products.
SHORT_WORDS = frozenset(
    "yes no odd even true false none dne both never east west north south red blue green".split()
)


def unit_key(word: str) -> str | None:
    """The key of a known unit; case matters only for short symbols (`mW` is not `MW`)."""
    if word in UNITS:
        return UNITS[word]
    return UNITS.get(word.lower()) if len(word) > 3 else None


def noun_key(word: str) -> str:
    """The key of a counted noun: lower case, singular."""
    low = word.lower()
    return low[:-1] if len(low) > 3 and low.endswith("s") and not low.endswith("ss") else low

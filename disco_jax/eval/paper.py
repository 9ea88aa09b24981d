"""The accuracy rows of the paper's Tables 2 to 5, as printed: pass@1 over 16 samples.

Train and test lengths are the paper's "MRL" column. None stands for a cell left empty.
"""

from typing import NamedTuple

COLUMNS = ("AIME 2024", "AIME 2025", "MATH 500", "AMC 2023", "Minerva", "O-Bench")


class Row(NamedTuple):
    """One printed row; `scores` in the order of `COLUMNS`, `average` as printed."""

    method: str
    lengths: str
    scores: tuple[float | None, ...]
    average: float | None


def _row(method: str, lengths: str, *cells: float | None) -> Row:
    return Row(method, lengths, cells[:-1], cells[-1])


_QWEN_1_5B = (
    _row("DS-Distill-Qwen-1.5B", "32k+ / 32k", 0.288, 0.263, 0.828, 0.629, 0.265, 0.433, 0.451),
    _row("DS-Distill-Qwen-1.5B", "32k+ / 8k", 0.181, 0.215, 0.758, 0.515, 0.237, 0.353, 0.376),
)

TABLES: dict[str, tuple[Row, ...]] = {
    "1.5b": (  # Table 2: DeepSeek-R1-Distill-Qwen-1.5B, DeepScaleR-Preview
        _row("OpenAI-o1-Preview", "-", 0.4, None, 0.814, None, None, None, None),
        *_QWEN_1_5B,
        _row("STILL-3-1.5B-preview", "29k / 32k", 0.325, 0.248, 0.844, 0.667, 0.290, 0.454, 0.471),
        _row("DSR-1.5B-Preview", "24k / 32k", 0.431, 0.304, 0.878, 0.736, 0.302, 0.500, 0.525),
        _row("DSR-1.5B-Preview", "24k / 8k", 0.358, 0.258, 0.860, 0.679, 0.297, 0.473, 0.488),
        _row("GRPO", "8k / 8k", 0.277, 0.242, 0.838, 0.647, 0.276, 0.462, 0.457),
        _row("GRPO-ER", "8k / 8k", 0.298, 0.242, 0.839, 0.649, 0.279, 0.452, 0.460),
        _row("Dr. GRPO", "8k / 8k", 0.252, 0.238, 0.831, 0.631, 0.268, 0.440, 0.443),
        _row("DAPO", "8k / 8k", 0.310, 0.252, 0.848, 0.675, 0.296, 0.456, 0.473),
        _row("TRPA", "8k / 8k", 0.354, 0.235, 0.835, 0.653, 0.283, 0.458, 0.470),
        _row("DisCO (L-ratio)", "8k / 8k", 0.381, 0.306, 0.878, 0.746, 0.319, 0.512, 0.524),
        _row("DisCO (log-L)", "8k / 8k", 0.404, 0.317, 0.876, 0.758, 0.333, 0.509, 0.533),
    ),
    "7b": (  # Table 3: DeepSeek-R1-Distill-Qwen-7B, DeepScaleR-Preview
        _row("DS-Distill-Qwen-7B", "32k+ / 32k", 0.560, 0.396, 0.923, 0.825, 0.380, 0.568, 0.609),
        _row("DS-Distill-Qwen-7B", "32k+ / 8k", 0.402, 0.292, 0.873, 0.688, 0.355, 0.471, 0.513),
        _row("GRPO-LEAD-7B", "8k / 8k", 0.470, 0.345, 0.893, 0.748, 0.372, 0.500, 0.555),
        _row("TRPA (its authors)", "8k / 8k", 0.570, None, 0.870, 0.780, 0.360, 0.550, None),
        _row("GRPO", "8k / 8k", 0.498, 0.394, 0.916, 0.807, 0.381, 0.555, 0.592),
        _row("GRPO-ER", "8k / 8k", 0.515, 0.381, 0.916, 0.825, 0.376, 0.544, 0.593),
        _row("Dr. GRPO", "8k / 8k", 0.488, 0.346, 0.910, 0.792, 0.368, 0.546, 0.575),
        _row("DAPO", "8k / 8k", 0.454, 0.335, 0.907, 0.799, 0.388, 0.535, 0.570),
        _row("TRPA", "8k / 8k", 0.510, 0.367, 0.898, 0.779, 0.379, 0.534, 0.578),
        _row("DisCO (L-ratio)", "8k / 8k", 0.583, 0.421, 0.923, 0.852, 0.399, 0.585, 0.627),
        _row("DisCO (log-L)", "8k / 8k", 0.558, 0.410, 0.927, 0.854, 0.410, 0.592, 0.625),
    ),
    "8b": (  # Table 4: DeepSeek-R1-Distill-Llama-8B, DeepScaleR-Preview
        _row("DS-Distill-Llama-8B", "32k+ / 32k", 0.506, 0.346, 0.896, 0.815, 0.295, 0.541, 0.566),
        _row("DS-Distill-Llama-8B", "32k+ / 8k", 0.348, 0.238, 0.825, 0.652, 0.267, 0.440, 0.462),
        _row("GRPO", "8k / 8k", 0.410, 0.240, 0.873, 0.759, 0.307, 0.506, 0.516),
        _row("GRPO+ER", "8k / 8k", 0.408, 0.277, 0.882, 0.785, 0.311, 0.511, 0.529),
        _row("Dr. GRPO", "8k / 8k", 0.423, 0.285, 0.867, 0.786, 0.300, 0.497, 0.526),
        _row("DAPO", "8k / 8k", 0.333, 0.308, 0.879, 0.794, 0.325, 0.522, 0.527),
        _row("TRPA", "8k / 8k", 0.454, 0.279, 0.864, 0.756, 0.289, 0.518, 0.527),
        _row("DisCO (L-ratio)", "8k / 8k", 0.506, 0.356, 0.900, 0.831, 0.326, 0.553, 0.579),
        _row("DisCO (log-L)", "8k / 8k", 0.523, 0.354, 0.896, 0.843, 0.331, 0.560, 0.584),
    ),
    "1.5b-dapo17k": (  # Table 5: DeepSeek-R1-Distill-Qwen-1.5B, DAPO-Math-17k
        *_QWEN_1_5B,
        _row("GRPO", "8k / 8k", 0.342, 0.256, 0.842, 0.672, 0.267, 0.458, 0.473),
        _row("GRPO-ER", "8k / 8k", 0.290, 0.260, 0.852, 0.681, 0.287, 0.463, 0.472),
        _row("Dr. GRPO", "8k / 8k", 0.300, 0.250, 0.849, 0.705, 0.292, 0.464, 0.477),
        _row("DAPO", "8k / 8k", 0.275, 0.229, 0.812, 0.653, 0.256, 0.441, 0.444),
        _row("TRPA", "8k / 8k", 0.346, 0.279, 0.836, 0.683, 0.281, 0.450, 0.479),
        _row("DisCO (L-ratio)", "8k / 8k", 0.413, 0.310, 0.874, 0.775, 0.307, 0.495, 0.529),
        _row("DisCO (log-L)", "8k / 8k", 0.460, 0.317, 0.873, 0.775, 0.320, 0.502, 0.541),
    ),
}

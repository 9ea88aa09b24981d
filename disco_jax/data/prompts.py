"""From a problem's text to left-padded prompt tokens, through the model's own tokenizer."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

SUFFIX = "Let's think step by step and output the final answer within \\boxed{}."  # the paper's
MODES = ("auto", "chat", "raw")
THINK = ("template", "open", "none")
_OPENING = "<think>\n"


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer, reduced to what training needs. Made by `load_tokenizer`.

    Attributes:
      name: where it was loaded from.
      inner: the transformers tokenizer.
      chat: prompts go through the chat template; otherwise they are raw completions.
      think: whether a chat prompt ends with an opened `<think>`: as the template has it
        ("template"), always ("open") or never ("none"). The R1-Distill templates of February 2025
        and later open it, the earlier ones do not.
      bos: prepended exactly once; None where the tokenizer itself puts nothing in front of a text.
      eos_ids: every token that ends a response, of the tokenizer and of generation_config.json.
      pad_id: the tokenizer's padding token, or else the first of `eos_ids`.
      size: number of token ids; a model may have more rows than that, never fewer.
    """

    name: str
    inner: Any
    chat: bool
    think: str
    bos: int | None
    eos_ids: tuple[int, ...]
    pad_id: int
    size: int

    def encode_prompt(self, problem: str, suffix: str = "") -> list[int]:
        """Prompt tokens of one problem, with the suffix one space behind it.

        Raises:
          ValueError: the prompt has no tokens.
        """
        text = self.prompt_text(f"{problem} {suffix}" if suffix else problem)
        ids = list(self.inner.encode(text, add_special_tokens=False))
        if self.bos is not None:
            while ids[:1] == [self.bos]:
                ids.pop(0)
            ids.insert(0, self.bos)
        if not ids:
            raise ValueError(f"problem={problem!r}: no tokens; drop empty problems")
        return ids

    def prompt_text(self, content: str) -> str:
        """The text of a prompt: the user's turn and the opening of the model's, or the content."""
        if not self.chat:
            return content
        text = self.inner.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        opened = text.rstrip().endswith("<think>")
        if self.think == "open" and not opened:
            return text + _OPENING
        if self.think == "none" and opened:
            return text.rstrip().removesuffix("<think>")
        return text

    def decode(self, ids: Sequence[int]) -> str:
        """Text of response tokens, without the end-of-sequence and padding tokens.

        All other special tokens stay: in some tokenizers `</think>` is one of them, and the grader
        needs it.
        """
        silent = {*self.eos_ids, self.pad_id}
        kept = [int(i) for i in ids if int(i) not in silent]
        return self.inner.decode(kept, clean_up_tokenization_spaces=False)

    def show(self, ids: Sequence[int]) -> str:
        """The prompt as the model sees it, one `|` between tokens, line ends escaped."""
        pieces = [self.inner.decode([int(i)], clean_up_tokenization_spaces=False) for i in ids]
        return "|".join(p.replace("\n", "\\n") for p in pieces)


def load_tokenizer(path: str, mode: str = "auto", think: str = "template") -> Tokenizer:
    """Loads the tokenizer of a model folder, or of a Hugging Face hub id.

    A `path` with a leading ".", "/" or "~", or that exists, is a folder and nothing is downloaded.
    A hub id is looked up in the local cache first.

    Args:
      mode: "chat" needs a chat template, "raw" ignores it, "auto" uses it where there is one.
      think: see `Tokenizer`.

    Raises:
      ValueError: no tokenizer there, no chat template with mode="chat", no end-of-sequence token.
    """
    if mode not in MODES or think not in THINK:
        raise ValueError(
            f"mode={mode!r} of {', '.join(MODES)}; think={think!r} of {', '.join(THINK)}"
        )
    local = path.startswith((".", "/", "~")) or os.path.exists(path)
    where = os.path.expanduser(path)
    if local and not os.path.isdir(where):
        raise ValueError(f"tokenizer={path!r}: no such folder")
    with _no_advisory():
        from transformers import AutoTokenizer

        inner = _load(AutoTokenizer.from_pretrained, path, where, local)
    if mode == "chat" and not inner.chat_template:
        raise ValueError(f"tokenizer={path!r}: no chat template; use mode='raw' or 'auto'")
    eos_ids = _eos_ids(inner, where, local)
    if not eos_ids:
        raise ValueError(
            f"tokenizer={path!r}: no end-of-sequence token; set eos_token in "
            "tokenizer_config.json or eos_token_id in generation_config.json"
        )
    probe = inner.encode("a")
    adds_bos = inner.bos_token_id is not None and probe[:1] == [inner.bos_token_id]
    return Tokenizer(
        name=path,
        inner=inner,
        chat=mode != "raw" and bool(inner.chat_template),
        think=think,
        bos=inner.bos_token_id if adds_bos else None,
        eos_ids=eos_ids,
        pad_id=eos_ids[0] if inner.pad_token_id is None else int(inner.pad_token_id),
        size=len(inner),
    )


def pad_prompts(
    prompts: Sequence[Sequence[int]], length: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Left-pads to `prompt_QP` (int32, P = `length`) and `prompt_length_Q` (int32).

    Raises:
      ValueError: a prompt is empty or longer than `length`. Nothing is ever cut: drop long
        questions beforehand with `filters.too_long`.
    """
    prompt_QP = np.full((len(prompts), length), pad_id, np.int32)
    for row, ids in enumerate(prompts):
        if not 0 < len(ids) <= length:
            raise ValueError(
                f"prompt {row} has {len(ids)} tokens; from 1 to max_prompt={length} fit. "
                "Raise the limit or drop the question"
            )
        prompt_QP[row, length - len(ids) :] = ids
    return prompt_QP, np.array([len(ids) for ids in prompts], np.int32)


def _load(from_pretrained: Any, path: str, where: str, local: bool) -> Any:
    """The tokenizer from the folder or the hub's cache, and only then from the hub."""
    for cached in (True,) if local else (True, False):
        try:
            return from_pretrained(where, local_files_only=cached)
        except Exception as error:  # transformers raises OSError, ValueError, KeyError, ...
            reason = error
    first = str(reason).strip().split("\n")[0]
    mend = "is it a model folder?" if local else "download it elsewhere and name the folder"
    raise ValueError(f"tokenizer={path!r}: cannot be loaded: {first} ({mend})") from reason


def _eos_ids(inner: Any, where: str, local: bool) -> tuple[int, ...]:
    found = [] if inner.eos_token_id is None else [int(inner.eos_token_id)]
    config = pathlib.Path(where) / "generation_config.json"
    if not local:
        from transformers.utils.hub import cached_file

        fetched = cached_file(where, config.name, _raise_exceptions_for_missing_entries=False)
        config = pathlib.Path(fetched) if fetched else config
    if config.is_file():
        ids = json.loads(config.read_text()).get("eos_token_id")
        found += ids if isinstance(ids, list) else [] if ids is None else [int(ids)]
    return tuple(dict.fromkeys(found))


@contextlib.contextmanager
def _no_advisory() -> Iterator[None]:
    """Keeps transformers from announcing that PyTorch is absent: nothing here needs it."""
    name = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before

"""Prompts: the model's own template, one BOS, nothing cut, nothing said on stderr."""

import json
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors

from disco_jax.data import prompts

SPECIAL = ["<bos>", "<eos>", "<pad>", "<|user|>", "<|assistant|>"]
CHARACTERS = [chr(c) for c in range(32, 127)] + ["\n"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
THINKING = TEMPLATE.replace("<|assistant|>", "<|assistant|><think>\n")


def save(folder, template=None, adds_bos=False, pad="<pad>", eos="<eos>", eos_ids=None, special=()):
    """A character-level tokenizer in Hugging Face layout."""
    names = [*SPECIAL, *special, *CHARACTERS]
    inner = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate(names)}, []))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens([*SPECIAL, *special])
    if adds_bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 0)]
        )
    inner.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>"}
    config |= {key: value for key, value in (("eos_token", eos), ("pad_token", pad)) if value}
    config |= {"chat_template": template} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if eos_ids is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos_ids}))
    return str(folder)


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE.replace("{{ bos_token }}", ""), None])
def test_bos_stands_once_where_template_or_tokenizer_puts_it(tmp_path, template, adds_bos):
    tokenizer = prompts.load_tokenizer(save(tmp_path, template, adds_bos))
    ids = tokenizer.encode_prompt("1+1", "Box it.")
    expected = adds_bos or (template is not None and template.startswith("{{ bos"))
    assert ids.count(0) == expected and (ids[0] == 0) == expected
    assert "|1|+|1| |B|o|x| |i|t|." in "|" + tokenizer.show(ids)


def test_chat_prompt_is_the_template_and_raw_is_the_text(tmp_path):
    path = save(tmp_path, TEMPLATE)
    chat, raw = prompts.load_tokenizer(path), prompts.load_tokenizer(path, mode="raw")
    assert chat.chat and not raw.chat
    assert chat.show(chat.encode_prompt("a b")) == "<bos>|<|user|>|a| |b|<|assistant|>"
    assert raw.show(raw.encode_prompt("a b")) == "a| |b"


def test_a_model_without_template_is_a_raw_completion_model(tmp_path):
    path = save(tmp_path)
    assert not prompts.load_tokenizer(path).chat
    with pytest.raises(ValueError, match="no chat template; use mode='raw'"):
        prompts.load_tokenizer(path, mode="chat")


@pytest.mark.parametrize("template", [TEMPLATE, THINKING])
@pytest.mark.parametrize("think", prompts.THINK)
def test_thinking_is_opened_as_asked_by_old_and_new_templates(tmp_path, template, think):
    tokenizer = prompts.load_tokenizer(save(tmp_path, template), think=think)
    text = tokenizer.prompt_text("q")
    opened = think == "open" or (think == "template" and template == THINKING)
    assert text == "<bos><|user|>q<|assistant|>" + ("<think>\n" if opened else "")


def test_ends_are_those_of_tokenizer_and_generation_config(tmp_path):
    tokenizer = prompts.load_tokenizer(save(tmp_path, eos_ids=[4, 1]))
    assert tokenizer.eos_ids == (1, 4) and tokenizer.pad_id == 2
    assert tokenizer.size == len(SPECIAL) + len(CHARACTERS)


def test_padding_falls_back_to_the_end_token_and_no_end_is_refused(tmp_path):
    assert prompts.load_tokenizer(save(tmp_path, pad=None)).pad_id == 1
    path = save(tmp_path, pad=None, eos=None)
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        prompts.load_tokenizer(path)
    assert prompts.load_tokenizer(save(tmp_path, pad=None, eos=None, eos_ids=1)).eos_ids == (1,)


@given(st.text(st.sampled_from(CHARACTERS), min_size=1))
def test_text_comes_back_whole(tmp_path_factory, text):
    tokenizer = _cached(tmp_path_factory)
    ids = tokenizer.encode_prompt(text)
    assert tokenizer.decode([*ids, 1, 2, 2]) == text


_LOADED = []


def _cached(factory):
    if not _LOADED:
        _LOADED.append(prompts.load_tokenizer(save(factory.mktemp("t"))))
    return _LOADED[0]


def test_decoding_keeps_special_tokens_that_the_grader_reads(tmp_path):
    tokenizer = prompts.load_tokenizer(save(tmp_path, special=["</think>"]))
    ids = tokenizer.encode_prompt("x</think>y")
    assert len(ids) == 3 and tokenizer.decode([*ids, 1]) == "x</think>y"


@given(
    st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=7), max_size=5), st.integers(7, 9)
)
def test_prompts_are_padded_on_the_left(rows, length):
    prompt_QP, prompt_length_Q = prompts.pad_prompts(rows, length, 0)
    assert prompt_QP.shape == (len(rows), length)
    assert prompt_QP.dtype == prompt_length_Q.dtype == np.int32
    for row, padded, n in zip(rows, prompt_QP, prompt_length_Q, strict=True):
        assert padded[length - n :].tolist() == row and not padded[: length - n].any()


@pytest.mark.parametrize("row", [[], [1, 2, 3, 4]])
def test_prompts_that_do_not_fit_are_refused_not_cut(row):
    with pytest.raises(ValueError, match="prompt 1 has . tokens; from 1 to max_prompt=3"):
        prompts.pad_prompts([[1], row], 3, 0)


def test_sentencepiece_model(tmp_path):
    """A folder of the Llama kind that has only tokenizer.model."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(f"{a} plus {b} is {a + b}" for a in range(30) for b in range(30)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(tmp_path / "tokenizer"),
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True})
    )
    tokenizer = prompts.load_tokenizer(str(tmp_path))
    ids = tokenizer.encode_prompt("7 plus 8 is")
    assert ids.count(1) == 1 and ids[0] == 1
    assert tokenizer.eos_ids == (2,) and tokenizer.size == 300
    assert tokenizer.decode(ids[1:]).strip() == "7 plus 8 is"


@pytest.mark.parametrize(
    "path, message", [("/no/such/folder", "no such folder"), (".", "cannot be loaded")]
)
def test_folders_without_tokenizer_say_so(path, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        prompts.load_tokenizer(path)


def test_unknown_switches_are_refused(tmp_path):
    with pytest.raises(ValueError, match="auto, chat, raw"):
        prompts.load_tokenizer(str(tmp_path), mode="instruct")
    with pytest.raises(ValueError, match="template, open, none"):
        prompts.load_tokenizer(str(tmp_path), think="yes")


def test_loading_says_nothing_and_changes_no_environment(tmp_path):
    path = save(tmp_path, TEMPLATE)
    code = (
        "import os; from disco_jax.data import prompts; before = dict(os.environ);"
        f"prompts.load_tokenizer({path!r}).encode_prompt('1'); assert dict(os.environ) == before"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

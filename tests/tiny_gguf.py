"""A language model of our own making: about a million random weights that a real llama.cpp loads in no time.

It knows no language, but its replies are tame: printable ASCII, a few dozen tokens long, different for every
prompt and seed. So tests read real generations without a download, and pay milliseconds for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT_LENGTH = 4096

_WIDTH, _LAYERS, _HEADS, _KV_HEADS, _HIDDEN = 128, 4, 4, 2, 512
_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES = ("t h", "h e", "i n", "e r", "a n", "th e", "Ġ t", "Ġ a", "Ġt he", "an d", "in g", "Ġa nd")
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_gguf(path: Path, *, seed: int = 0, named: str = "tiny") -> Path:
    """Write the model to `path` and return it; the same seed gives the same bytes, another seed others."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    vocabulary = _vocabulary()
    _write_shape(writer, named=named)
    _write_tokenizer(writer, vocabulary)
    for name, tensor in _tensors(vocabulary, np.random.default_rng(seed)):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_shape(writer: Any, *, named: str) -> None:  # noqa: ANN401 - gguf ships no types
    writer.add_name(named)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_file_type(1)  # mostly F16


def _write_tokenizer(writer: Any, vocabulary: list[str]) -> None:  # noqa: ANN401
    normal, control = 1, 3
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([control if token in _SPECIALS else normal for token in vocabulary])
    writer.add_token_merges(list(_MERGES))
    writer.add_bos_token_id(vocabulary.index("<|im_start|>"))
    writer.add_eos_token_id(vocabulary.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_CHATML)


def _byte_symbols() -> list[str]:
    """The characters that byte-level BPE writes the 256 bytes as: printable ones stand for themselves."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(shifted)) for byte in range(256)]


def _vocabulary() -> list[str]:
    return [*_SPECIALS, *_byte_symbols(), *(merge.replace(" ", "") for merge in _MERGES)]


def _tensors(vocabulary: list[str], rng: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Random weights, but for one lane of the residual stream that no layer writes to.

    Every embedding puts the same number in that lane, so the last layer can read it as a constant, and the
    output's weights on it are a bias for each token: what keeps the replies printable and short.
    """
    import numpy as np

    def noise(rows: int, columns: int, *, scale: float, writes: bool = False) -> Any:  # noqa: ANN401
        weights = rng.normal(0, scale, (rows, columns))
        if writes:
            weights[0] = 0
        return weights.astype(np.float16)

    ones, keys = np.ones(_WIDTH, dtype=np.float32), _WIDTH * _KV_HEADS // _HEADS
    embedding = noise(len(vocabulary), _WIDTH, scale=1.0)
    embedding[:, 0] = 4.0
    output = noise(len(vocabulary), _WIDTH, scale=0.12)
    output[:, 0] = [_bias(token) for token in vocabulary]
    tensors = [("token_embd.weight", embedding), ("output.weight", output), ("output_norm.weight", ones)]
    for layer in range(_LAYERS):
        parts = {
            "attn_norm": ones,
            "ffn_norm": ones,
            "attn_q": noise(_WIDTH, _WIDTH, scale=0.1),
            "attn_k": noise(keys, _WIDTH, scale=0.1),
            "attn_v": noise(keys, _WIDTH, scale=0.1),
            "attn_output": noise(_WIDTH, _WIDTH, scale=0.08, writes=True),
            "ffn_gate": noise(_HIDDEN, _WIDTH, scale=0.1),
            "ffn_up": noise(_HIDDEN, _WIDTH, scale=0.1),
            "ffn_down": noise(_WIDTH, _HIDDEN, scale=0.08, writes=True),
        }
        tensors += [(f"blk.{layer}.{part}.weight", tensor) for part, tensor in parts.items()]
    return tensors


def _bias(token: str) -> float:
    """How likely a token is: quotes end strings soon, replies end within dozens of tokens."""
    known = {"<|im_end|>": 0.9, '"': 1.4, "Ġ": 0.8, "Ġt": 0.8, "Ġa": 0.8, "Ġthe": 0.8, "Ġand": 0.8}
    if token in known:
        return known[token]
    if token in _SPECIALS or not token.isascii():
        return -8.0
    return 0.5 if token.isalpha() and token.islower() else -0.5

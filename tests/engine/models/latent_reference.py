"""One decoder layer of GLM-5 in float64 numpy, written from its formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tests.fakes.tiny_checkpoint import Weights

F64 = npt.NDArray[np.float64]


def rms(x: F64, weight: npt.ArrayLike, eps: float) -> F64:
    """Return x over its root mean square, times weight."""
    normed: F64 = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight
    return normed


def silu(z: F64) -> F64:
    """Return z * sigmoid(z)."""
    activated: F64 = z / (1 + np.exp(-z))
    return activated


def turn(x: F64, positions: npt.NDArray[np.int64], theta: float) -> F64:
    """Rotate neighbouring pairs of the last axis of x (N, heads, d)."""
    d = x.shape[-1]
    angles = positions[:, None] * theta ** (-2.0 * np.arange(d // 2) / d)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return out


class SparseLayer:
    """A layer with an indexer of its own and a mixture, over a whole sequence at once.

    Args:
        config: As in `config.json`.
        weights: All tensors.
        prefix: The layer's ("model.layers.4").
    """

    def __init__(self, config: dict[str, Any], weights: Weights, prefix: str) -> None:
        self._config = config
        self._weights = weights
        self._prefix = prefix

    def _w(self, name: str) -> F64:
        values: F64 = self._weights[f"{self._prefix}.{name}"].astype(np.float64)
        return values

    def __call__(self, x: F64) -> F64:
        """Return the layer's output for x (N, C), positions 0 to N - 1."""
        eps = self._config["rms_norm_eps"]
        x = x + self.attention(rms(x, self._w("input_layernorm.weight"), eps))
        return x + self.mixture(rms(x, self._w("post_attention_layernorm.weight"), eps))

    def attention(self, a: F64) -> F64:
        """Return the attention's output; keys and values of all heads are made."""
        config, count = self._config, len(a)
        H, R = config["num_attention_heads"], config["kv_lora_rank"]
        n, v = config["qk_nope_head_dim"], config["v_head_dim"]
        theta, positions = config["rope_parameters"]["rope_theta"], np.arange(count)
        qr = rms(
            a @ self._w("self_attn.q_a_proj.weight").T,
            self._w("self_attn.q_a_layernorm.weight"),
            1e-6,
        )
        q = (qr @ self._w("self_attn.q_b_proj.weight").T).reshape(count, H, -1)
        q[..., n:] = turn(q[..., n:], positions, theta)
        latent = a @ self._w("self_attn.kv_a_proj_with_mqa.weight").T
        c = rms(latent[:, :R], self._w("self_attn.kv_a_layernorm.weight"), 1e-6)
        turned = turn(latent[:, None, R:], positions, theta)
        kv = (c @ self._w("self_attn.kv_b_proj.weight").T).reshape(count, H, n + v)
        keys = np.concatenate([kv[..., :n], np.broadcast_to(turned, (count, H, q.shape[2] - n))], 2)
        scores = np.einsum("phd,thd->hpt", q, keys) * q.shape[2] ** -0.5
        scores[:, ~self.choice(a, qr)] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        out: F64 = np.einsum("hpt,thv->phv", weights, kv[..., n:]).reshape(count, -1)
        return out @ self._w("self_attn.o_proj.weight").T

    def choice(self, a: F64, qr: F64) -> npt.NDArray[np.bool_]:
        """Return (N, N): whether row p looks at position t."""
        config, count = self._config, len(a)
        heads, dim = config["index_n_heads"], config["index_head_dim"]
        rotated, theta = config["qk_rope_head_dim"], config["rope_parameters"]["rope_theta"]
        positions = np.arange(count)
        k = a @ self._w("self_attn.indexer.wk.weight").T
        k = (k - k.mean(axis=1, keepdims=True)) / np.sqrt(k.var(axis=1, keepdims=True) + 1e-6)
        k = k * self._w("self_attn.indexer.k_norm.weight")
        k = (k + self._w("self_attn.indexer.k_norm.bias"))[:, None, :]
        k[..., :rotated] = turn(k[..., :rotated], positions, theta)
        q = (qr @ self._w("self_attn.indexer.wq_b.weight").T).reshape(count, heads, dim)
        q[..., :rotated] = turn(q[..., :rotated], positions, theta)
        g = a @ self._w("self_attn.indexer.weights_proj.weight").T
        shares = np.maximum(np.einsum("phd,td->pht", q, k[:, 0]) * dim**-0.5, 0)
        scores = np.einsum("ph,pht->pt", g, shares) * heads**-0.5
        visible = np.tril(np.ones((count, count), bool))
        scores[~visible] = -np.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, : config["index_topk"]]
        chosen = np.zeros_like(visible)
        np.put_along_axis(chosen, best, values=True, axis=1)
        kept: npt.NDArray[np.bool_] = chosen & visible
        return kept

    def mixture(self, m: F64) -> F64:
        """Return the routed and the shared experts' output."""
        config = self._config
        scores = 1 / (1 + np.exp(-(m @ self._w("mlp.gate.weight").T)))
        biased = scores + self._w("mlp.gate.e_score_correction_bias")
        out = self._gated("mlp.shared_experts", m)
        for row in range(len(m)):
            best = np.argsort(-biased[row], kind="stable")[: config["num_experts_per_tok"]]
            share = scores[row, best] / scores[row, best].sum() * config["routed_scaling_factor"]
            for expert, weight in zip(best, share, strict=True):
                name = f"mlp.experts.{expert}"
                out[row] += weight * self._gated(name, m[row : row + 1])[0]
        return out

    def _gated(self, name: str, m: F64) -> F64:
        gate, up, down = (self._w(f"{name}.{part}_proj.weight") for part in ("gate", "up", "down"))
        gated: F64 = (silu(m @ gate.T) * (m @ up.T)) @ down.T
        return gated

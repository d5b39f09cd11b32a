"""Recurrent layers over sequences [T, B, N] whose states are kept for each sample.

All take `(inputs, prev_state=None, list_next_state=True)` and return `(outputs [T, B, H], next_state)`. A state is
`{'h': [L, B, H], 'c': [L, B, H]}` for the whole batch, with L layers of width H, or a list of B such states with B = 1,
one for each sample. `prev_state` may be either, or None for zeros; in a list, None or a pair (h, c) may replace a dict.
`next_state` is a list unless `list_next_state` is false. The returned states share memory with each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ding.torch_utils.network.nn_module import Dropout, build_normalization
from ding.utils.data.nested import is_treetensor

State = dict[str, Tensor]

_LSTM_TYPES = ("normal", "pytorch", "gru", "hpc")


class LSTM(nn.Module):
    """An LSTM with layer norm on both parts of its gates.

    Per layer and step: g = LN(x Wx) + LN(h Wh) + b, cut into i, f, o, u; c = sigmoid(f) c + sigmoid(i) tanh(u);
    h = sigmoid(o) tanh(c). See "Layer Normalization", https://arxiv.org/abs/1607.06450. Weights and biases start
    uniform in +-1/sqrt(hidden_size).

    Args:
        input_size: N.
        hidden_size: H.
        num_layers: L.
        norm_type: 'LN', or None for no normalisation.
        dropout: the dropout probability of a layer's outputs in training, except those of the last layer.

    Raises:
        KeyError: `norm_type` is unknown.

    Example:
        >>> outputs, states = LSTM(3, 4, num_layers=2, norm_type="LN")(torch.rand(5, 2, 3))
        >>> outputs.shape, len(states), states[0]["h"].shape
        (torch.Size([5, 2, 4]), 2, torch.Size([2, 1, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        norm_type: str | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if norm_type not in ("LN", None):
            raise KeyError(f"norm_type {norm_type!r} is unknown for an LSTM; allowed: 'LN' and None")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        # The order of the parameters is that of DI-engine: optimizers number them.
        self.norm, self.wx, self.wh = nn.ModuleList(), nn.ParameterList(), nn.ParameterList()
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size
            self.wx.append(nn.Parameter(torch.empty(width, 4 * hidden_size)))
            self.wh.append(nn.Parameter(torch.empty(hidden_size, 4 * hidden_size)))
            if norm_type is not None:
                self.norm.extend(build_normalization(norm_type)(4 * hidden_size) for _ in range(2))
        self.bias = nn.Parameter(torch.empty(num_layers, 4 * hidden_size))
        self.dropout = Dropout(dropout)
        bound = 1 / math.sqrt(hidden_size)
        for parameter in (*self.wx, *self.wh, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, inputs: Tensor, prev_state: Any = None, list_next_state: bool = True
    ) -> tuple[Tensor, State | list[State]]:
        """Run the layer over the sequences `inputs` [T, B, N]; see the module for states.

        Raises:
            RuntimeError: `prev_state` is a list of another length than B.
        """
        h, c = _batch_state(prev_state, inputs, self.num_layers, self.hidden_size)
        last_h, last_c = [], []
        x = inputs
        for layer in range(self.num_layers):
            x, layer_c = self._run_layer(layer, x if layer == 0 else self.dropout(x), h[layer], c[layer])
            last_h.append(x[-1])
            last_c.append(layer_c)
        return x, _split_state(torch.stack(last_h), torch.stack(last_c), list_next_state)

    def _run_layer(self, layer: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        wh, size = self.wh[layer], self.hidden_size
        norm_h = self.norm[2 * layer + 1] if self.norm else None
        # The input's part does not depend on the state: one product for all steps.
        from_inputs = x @ self.wx[layer]
        if self.norm:
            from_inputs = self.norm[2 * layer](from_inputs)
        outputs = []
        for gates in (from_inputs + self.bias[layer]).unbind(0):
            gates = gates + (h @ wh if norm_h is None else norm_h(h @ wh))
            i, f, o = torch.sigmoid(gates[:, : 3 * size]).chunk(3, dim=-1)
            c = f * c + i * torch.tanh(gates[:, 3 * size :])
            h = o * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs), c


class PytorchLSTM(nn.LSTM):
    """torch's own LSTM, with states for each sample; see the module.

    Example:
        >>> outputs, state = PytorchLSTM(3, 4)(torch.rand(5, 2, 3), list_next_state=False)
        >>> state["c"].shape
        torch.Size([1, 2, 4])
    """

    def forward(  # type: ignore[override]
        self, inputs: Tensor, prev_state: Any = None, list_next_state: bool = True
    ) -> tuple[Tensor, State | list[State]]:
        """Run the layer over the sequences `inputs` [T, B, N]; see the module for states.

        Raises:
            RuntimeError: `prev_state` is a list of another length than B.
        """
        state = _batch_state(prev_state, inputs, self.num_layers, self.hidden_size)
        outputs, (h, c) = super().forward(inputs, state)
        return outputs, _split_state(h, c, list_next_state)


class GRU(nn.GRUCell):
    """torch's GRU cell, one layer, run over the steps of a sequence; see the module.

    A GRU has no cell state: 'c' of its states is passed on unchanged.

    Example:
        >>> outputs, states = GRU(3, 4)(torch.rand(1, 2, 3))
        >>> outputs.shape
        torch.Size([1, 2, 4])
    """

    def forward(  # type: ignore[override]
        self, inputs: Tensor, prev_state: Any = None, list_next_state: bool = True
    ) -> tuple[Tensor, State | list[State]]:
        """Run the layer over the sequences `inputs` [T, B, N]; see the module for states.

        Raises:
            RuntimeError: `prev_state` is a list of another length than B.
        """
        state, c = _batch_state(prev_state, inputs, 1, self.hidden_size)
        h, outputs = state[0], []
        for x in inputs.unbind(0):
            h = super().forward(x, h)
            outputs.append(h)
        return torch.stack(outputs), _split_state(h.unsqueeze(0), c, list_next_state)


def is_sequence(data: Any) -> bool:
    """Return whether `data` is a list or a tuple."""
    return isinstance(data, list | tuple)


def get_lstm(
    lstm_type: str,
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    norm_type: str | None = "LN",
    dropout: float = 0.0,
    seq_len: int | None = None,
    batch_size: int | None = None,
) -> LSTM | PytorchLSTM | GRU:
    """Return the recurrent layer called 'normal' (`LSTM`), 'pytorch' (`PytorchLSTM`) or 'gru' (`GRU`).

    `norm_type` is used by 'normal' only, `dropout` by both LSTMs. `seq_len` and `batch_size` belong to 'hpc', the
    compiled LSTM of another package, and are ignored.

    Raises:
        AssertionError: `lstm_type` is unknown.
        NotImplementedError: `lstm_type` is 'hpc'.
        ValueError: 'gru' is requested with several layers.
    """
    if lstm_type not in _LSTM_TYPES:
        raise AssertionError(f"lstm_type {lstm_type!r} is unknown; allowed: {', '.join(_LSTM_TYPES[:-1])}")
    if lstm_type == "hpc":
        raise NotImplementedError("lstm_type 'hpc' needs DI-hpc, which is not supported; use 'normal' or 'pytorch'")
    if lstm_type == "normal":
        return LSTM(input_size, hidden_size, num_layers, norm_type, dropout)
    if lstm_type == "pytorch":
        # With one layer there is nothing to drop, and torch warns.
        return PytorchLSTM(input_size, hidden_size, num_layers, dropout=dropout if num_layers > 1 else 0.0)
    if num_layers != 1:
        raise ValueError(f"num_layers = {num_layers} is not allowed for lstm_type 'gru', which has one layer")
    return GRU(input_size, hidden_size)


def _batch_state(prev_state: Any, inputs: Tensor, num_layers: int, hidden_size: int) -> tuple[Tensor, Tensor]:
    """Return (h, c) [L, B, H] of a state in any of its forms."""
    batch = inputs.shape[1]
    if isinstance(prev_state, Sequence):
        if len(prev_state) != batch:
            raise RuntimeError(f"there are {len(prev_state)} states for {batch} samples; give one for each")
        if all(state is None for state in prev_state):
            prev_state = None
    if prev_state is None:
        zeros = inputs.new_zeros(num_layers, batch, hidden_size)
        return zeros, zeros
    if not isinstance(prev_state, Sequence):
        state = _as_dict(prev_state)
        return state["h"], state["c"]
    zero = inputs.new_zeros(num_layers, 1, hidden_size)
    none = {"h": zero, "c": zero}
    states = [none if state is None else state if type(state) is dict else _as_dict(state) for state in prev_state]
    return torch.cat([state["h"] for state in states], dim=1), torch.cat([state["c"] for state in states], dim=1)


def _as_dict(state: Any) -> Mapping[str, Tensor]:
    if is_treetensor(type(state)):
        state = state.json()
    if isinstance(state, Mapping):
        return state
    if isinstance(state, Sequence) and len(state) == 2:
        return dict(zip(("h", "c"), state, strict=True))
    raise TypeError(f"a recurrent state must be None, a dict with h and c, or a pair, got {type(state).__name__}")


def _split_state(h: Tensor, c: Tensor, as_list: bool) -> State | list[State]:
    if not as_list:
        return {"h": h, "c": c}
    pairs = zip(h.unsqueeze(2).unbind(1), c.unsqueeze(2).unbind(1), strict=True)
    return [{"h": own_h, "c": own_c} for own_h, own_c in pairs]

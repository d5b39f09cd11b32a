"""Transformers: an encoder over sets of entities (https://arxiv.org/abs/1706.03762), and GTrXL, gated with memory.

See "Stabilizing Transformers for Reinforcement Learning", https://arxiv.org/abs/1910.06764, and, for relative attention
and memory, "Transformer-XL", https://arxiv.org/abs/1901.02860. Shapes: T steps, M remembered steps, B samples,
H heads of width D, embeddings of width E.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ding.torch_utils.network.nn_module import MLP, Activation, Dropout, as_activation, fc_block


class Attention(nn.Module):
    """Self-attention of `head_num` heads, each `head_dim` wide: [B, N, input_dim] to [B, N, output_dim].

    Example:
        >>> Attention(8, head_dim=4, output_dim=6, head_num=2)(torch.rand(1, 3, 8)).shape
        torch.Size([1, 3, 6])
    """

    def __init__(
        self, input_dim: int, head_dim: int, output_dim: int, head_num: int, dropout_ratio: float = 0.0
    ) -> None:
        super().__init__()
        self.head_num = head_num
        self.head_dim = head_dim
        self.dropout_ratio = dropout_ratio
        self.attention_pre = fc_block(input_dim, 3 * head_dim * head_num)  # query, key and value
        self.project = fc_block(head_dim * head_num, output_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend to the entities where `mask` [B, N] is true, or to all if it is true for none."""
        batch, entities, _ = x.shape
        heads = self.attention_pre(x).reshape(batch, entities, 3, self.head_num, self.head_dim)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # [B, head_num, N, head_dim] each
        bias = None
        if mask is not None:
            # Not minus infinity: a row without any entity to attend to would become NaN.
            bias = torch.zeros_like(mask, dtype=x.dtype).masked_fill(~mask.bool(), torch.finfo(x.dtype).min)
            bias = bias.reshape(batch, 1, 1, entities).expand(batch, 1, entities, entities)
        dropout = self.dropout_ratio if self.training else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)
        out: Tensor = self.project(attended.transpose(1, 2).reshape(batch, entities, -1))
        return out


class TransformerLayer(nn.Module):
    """Attention, then an MLP of `mlp_num` layers, each followed by dropout, a residual sum and a layer norm.

    Input and output are [B, N, output_dim]; `input_dim` must be `output_dim` for the residual sum.

    Example:
        >>> layer = TransformerLayer(8, head_dim=4, hidden_dim=16, output_dim=8, head_num=2, mlp_num=2)
        >>> layer(torch.rand(1, 3, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        input_dim: int,
        head_dim: int,
        hidden_dim: int,
        output_dim: int,
        head_num: int,
        mlp_num: int,
        dropout_ratio: float = 0.0,
        activation: Activation = nn.ReLU,
    ) -> None:
        super().__init__()
        self.attention = Attention(input_dim, head_dim, output_dim, head_num, dropout_ratio)
        self.layernorm1 = nn.LayerNorm(output_dim)
        self.mlp = MLP(
            output_dim, hidden_dim, output_dim, mlp_num, activation=as_activation(activation), output_activation=False
        )
        self.layernorm2 = nn.LayerNorm(output_dim)
        self.dropout = Dropout(dropout_ratio)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Apply the layer to `x` [B, N, input_dim]; `mask` is that of `Attention`."""
        x = self.layernorm1(x + self.dropout(self.attention(x, mask)))
        out: Tensor = self.layernorm2(x + self.dropout(self.mlp(x)))
        return out


class Transformer(nn.Module):
    """An embedding with activation, then `layer_num` layers: [B, N, input_dim] to [B, N, output_dim].

    Args:
        input_dim: the width of an entity's features.
        head_dim: the width of an attention head.
        hidden_dim: the width inside the MLPs.
        output_dim: the width of the embedding and of the result.
        head_num: the number of heads of each attention.
        mlp_num: the number of linear layers of each MLP.
        layer_num: the number of layers.
        dropout_ratio: the dropout probability in training, of attention weights and before each residual sum.
        activation: the activation of the embedding and inside the MLPs.

    Example:
        >>> Transformer(5, output_dim=8)(torch.rand(2, 3, 5), mask=torch.ones(2, 3, dtype=torch.bool)).shape
        torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        input_dim: int,
        head_dim: int = 128,
        hidden_dim: int = 1024,
        output_dim: int = 256,
        head_num: int = 2,
        mlp_num: int = 2,
        layer_num: int = 3,
        dropout_ratio: float = 0.0,
        activation: Activation = nn.ReLU,
    ) -> None:
        super().__init__()
        self.act = as_activation(activation)
        self.embedding = fc_block(input_dim, output_dim, activation=self.act)
        self.dropout = Dropout(dropout_ratio)
        self.main = nn.ModuleList(
            TransformerLayer(
                output_dim, head_dim, hidden_dim, output_dim, head_num, mlp_num, dropout_ratio, activation=self.act
            )
            for _ in range(layer_num)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode `x` [B, N, input_dim]; entities where `mask` [B, N] is false are ignored, their rows meaningless."""
        x = self.dropout(self.embedding(x))
        for layer in self.main:
            x = layer(x, mask)
        return x


class GRUGatingUnit(nn.Module):
    """A gate that merges an update `y` into `x` like a GRU.

    r = sigmoid(Wr y + Ur x), z = sigmoid(Wz y + Uz x - bg), h = tanh(Wg y + Ug (r x)); the result is (1 - z) x + z h.
    See "Stabilizing Transformers for Reinforcement Learning", https://arxiv.org/abs/1910.06764.

    Args:
        input_dim: the width of `x` and `y`, [*shape, input_dim] each.
        bg: the initial value of the parameter `bg`; the larger it is, the less of `y` is used at first.
        bias_init: another name of `bg`.

    Example:
        >>> GRUGatingUnit(4)(torch.zeros(2, 4), torch.zeros(2, 4))
        tensor([[0., 0., 0., 0.],
                [0., 0., 0., 0.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, input_dim: int, bg: float = 2.0, bias_init: float | None = None) -> None:
        super().__init__()
        self.Wr = nn.Linear(input_dim, input_dim, bias=False)
        self.Ur = nn.Linear(input_dim, input_dim, bias=False)
        self.Wz = nn.Linear(input_dim, input_dim, bias=False)
        self.Uz = nn.Linear(input_dim, input_dim, bias=False)
        self.Wg = nn.Linear(input_dim, input_dim, bias=False)
        self.Ug = nn.Linear(input_dim, input_dim, bias=False)
        self.bg = nn.Parameter(torch.full((input_dim,), float(bg if bias_init is None else bias_init)))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the gated sum [*shape, input_dim]; `x` and `y` have the same shape."""
        r = torch.sigmoid(self.Wr(y) + self.Ur(x))
        z = torch.sigmoid(self.Wz(y) + self.Uz(x) - self.bg)
        h = torch.tanh(self.Wg(y) + self.Ug(r * x))
        return (1 - z) * x + z * h


class PositionalEmbedding(nn.Module):
    """Embedding of positions [N] by sines, then cosines, at geometric frequencies: [N, 1, embedding_dim].

    Example:
        >>> PositionalEmbedding(2)(torch.tensor([0.0, 1.0]))
        tensor([[[0.0000, 1.0000]],
        <BLANKLINE>
                [[0.8415, 0.5403]]])
    """

    inv_freq: Tensor

    def __init__(self, embedding_dim: int) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.register_buffer("inv_freq", 1 / 10000 ** (torch.arange(0.0, embedding_dim, 2.0) / embedding_dim))

    def forward(self, pos_seq: Tensor) -> Tensor:
        angles = torch.outer(pos_seq.to(self.inv_freq), self.inv_freq)
        return torch.cat([angles.sin(), angles.cos()], dim=-1).unsqueeze(1)


class Memory:
    """The last `memory_len` hidden states of each layer: a tensor [layer_num + 1, M, B, E], initially zeros.

    The first of the layers is the input of the network.

    Args:
        memory: the initial contents; their batch size replaces `batch_size`.

    Example:
        >>> memory = Memory(memory_len=2, batch_size=1, embedding_dim=1, layer_num=0)
        >>> memory.update([torch.ones(1, 1, 1)]).flatten()
        tensor([0., 1.])
    """

    def __init__(
        self,
        memory_len: int = 20,
        batch_size: int = 64,
        embedding_dim: int = 256,
        layer_num: int = 3,
        memory: Tensor | None = None,
    ) -> None:
        self.memory_len = memory_len
        self.bs = batch_size
        self.embedding_dim = embedding_dim
        self.layer_num = layer_num
        self.memory: Tensor
        self.init(memory)

    def init(self, memory: Tensor | None = None) -> None:
        """Set the contents to `memory` [layer_num + 1, M, B, E], or to zeros."""
        if memory is None:
            memory = torch.zeros(self.layer_num + 1, self.memory_len, self.bs, self.embedding_dim)
        self.bs = memory.shape[2]
        self.memory = memory

    def update(self, hidden_state: Sequence[Tensor]) -> Tensor:
        """Append the hidden states [T, B, E] of each layer, without gradients, and return the last M of each layer."""
        states = torch.stack([state.detach() for state in hidden_state])
        joint = torch.cat([self.memory.to(states), states], dim=1)
        self.memory = joint[:, joint.shape[1] - self.memory_len :]
        return self.memory

    def get(self) -> Tensor:
        """Return the contents [layer_num + 1, M, B, E]."""
        return self.memory

    def to(self, device: str | torch.device = "cpu") -> None:
        """Move the contents to `device`."""
        self.memory = self.memory.to(device)


class AttentionXL(nn.Module):
    """Attention to memory and input with scores by content and relative position, from [T, B, E] to [T, B, E].

    The score of query i and key j is (q_i + u) k_j + (q_i + v) p_(i-j), over sqrt(D); see appendix B of Transformer-XL.

    Args:
        dropout: a module applied to the weights and to the result.

    Example:
        >>> attention = AttentionXL(4, head_dim=2, head_num=3, dropout=nn.Identity())
        >>> x, memory, bias = torch.rand(3, 1, 4), torch.rand(2, 1, 4), torch.zeros(3, 2)
        >>> distances = PositionalEmbedding(4)(torch.arange(4, -1, -1))
        >>> attention(x, distances, torch.cat([memory, x]), bias, bias).shape
        torch.Size([3, 1, 4])
    """

    def __init__(self, input_dim: int, head_dim: int, head_num: int, dropout: nn.Module) -> None:
        super().__init__()
        self.head_num = head_num
        self.head_dim = head_dim
        self.dropout = dropout
        width = head_num * head_dim
        self.attention_kv = fc_block(input_dim, 2 * width)
        self.attention_q = fc_block(input_dim, width)
        self.project = fc_block(width, input_dim)
        self.project_pos = fc_block(input_dim, width)
        self.scale = 1 / math.sqrt(head_dim)

    def forward(
        self,
        inputs: Tensor,
        pos_embedding: Tensor,
        full_input: Tensor,
        u: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Attend from `inputs` [T, B, E] to `full_input` [M + T, B, E].

        Args:
            pos_embedding: [M + T, 1, E], the embeddings of the distances M + T - 1 to 0.
            u, v: the biases [H, D] of content and position.
            mask: [T, M + T, 1], true where a step must not attend to another. Without it, later steps get wrong scores,
                since distances are not negative.
        """
        steps, batch, _ = inputs.shape
        everything = len(full_input)
        heads = (self.head_num, self.head_dim)
        key, value = (part.reshape(everything, batch, *heads) for part in self.attention_kv(full_input).chunk(2, -1))
        query = self.attention_q(inputs).reshape(steps, batch, *heads)
        position = self.project_pos(pos_embedding).reshape(everything, *heads)
        by_content = torch.einsum("ibhd,jbhd->bhij", query + u, key)
        # Scores [B, H, T, N] by distance, from N - 1 to 0, move to the keys at that distance: one zero in front of each
        # row shifts row i by T - 1 - i when the rows are cut anew.
        by_distance = torch.einsum("ibhd,jhd->bhij", query + v, position)
        padded = torch.cat([by_distance.new_zeros(batch, self.head_num, steps, 1), by_distance], dim=-1)
        by_position = padded.view(batch, self.head_num, everything + 1, steps)[:, :, 1:].reshape(by_distance.shape)
        score = (by_content + by_position) * self.scale
        if mask is not None:
            score = score.masked_fill(mask.squeeze(-1).bool(), -math.inf)
        attended = torch.einsum("bhij,jbhd->ibhd", self.dropout(score.softmax(-1)), value)
        out: Tensor = self.dropout(self.project(attended.reshape(steps, batch, -1)))
        return out


class GatedTransformerXLLayer(nn.Module):
    """A layer of `GTrXL`: attention and an MLP, each with a layer norm before it and a gate after it.

    Args:
        input_dim: E.
        hidden_dim: the width inside the MLP.
        mlp_num: the number of linear layers of the MLP.
        dropout: a module applied in attention and MLP.
        activation: the activation after the attention, and after each layer of the MLP.
        gru_gating: whether the gates are `GRUGatingUnit`; otherwise they are sums.
        gru_bias: `bg` of the gates.
    """

    def __init__(
        self,
        input_dim: int,
        head_dim: int,
        hidden_dim: int,
        head_num: int,
        mlp_num: int,
        dropout: nn.Module,
        activation: Activation,
        gru_gating: bool = True,
        gru_bias: float = 2.0,
    ) -> None:
        super().__init__()
        act = as_activation(activation) or nn.Identity()
        self.dropout = dropout
        self.gating = gru_gating
        if gru_gating:
            self.gate1 = GRUGatingUnit(input_dim, gru_bias)
            self.gate2 = GRUGatingUnit(input_dim, gru_bias)
        self.attention = AttentionXL(input_dim, head_dim, head_num, dropout)
        widths = [input_dim, *[hidden_dim] * (mlp_num - 1), input_dim]
        layers: list[nn.Module] = []
        for width_in, width_out in zip(widths, widths[1:], strict=False):
            layers += [fc_block(width_in, width_out, activation=act), dropout]
        self.mlp = nn.Sequential(*layers)
        self.layernorm1 = nn.LayerNorm(input_dim)
        self.layernorm2 = nn.LayerNorm(input_dim)
        self.activation = act

    def forward(
        self,
        inputs: Tensor,
        pos_embedding: Tensor,
        u: Tensor,
        v: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Map `inputs` [T, B, E] and `memory` [M, B, E] to [T, B, E]; for the other arguments see `AttentionXL`."""
        everything = self.layernorm1(torch.cat([memory, inputs]))
        # Queries are not normalised, unlike in the paper: weights that were trained this way rely on it.
        attended = self.activation(self.dropout(self.attention(inputs, pos_embedding, everything, u, v, mask)))
        x = self.gate1(inputs, attended) if self.gating else inputs + attended
        change = self.dropout(self.mlp(self.layernorm2(x)))
        out: Tensor = self.gate2(x, change) if self.gating else x + change
        return out


class GTrXL(nn.Module):
    """A transformer over the steps of a sequence, with memory of earlier sequences: [T, B, input_dim] to [T, B, E].

    Each step attends to itself, to earlier steps, and to the memory: the last `memory_len` inputs of each layer,
    without gradients. The memory belongs to the module, but not to its state dict; see `reset_memory`.

    Args:
        embedding_dim: e, an even number.
        mlp_num: the number of linear layers of the MLP in each layer.
        dropout_ratio: the dropout probability in training.
        activation: the activation of the embedding and of each layer.
        gru_gating: whether GRUs gate the residual connections; otherwise these are sums.
        gru_bias: the initial bias of the gates; the larger it is, the less a layer changes its input at first.
        use_embedding_layer: whether a linear layer with activation comes first; otherwise `input_dim` must be E.

    Example:
        >>> model = GTrXL(input_dim=5, head_dim=4, embedding_dim=8, memory_len=3)
        >>> output = model(torch.rand(6, 2, 5))
        >>> output["logit"].shape, output["memory"].shape
        (torch.Size([6, 2, 8]), torch.Size([4, 3, 2, 8]))
    """

    def __init__(
        self,
        input_dim: int,
        head_dim: int = 128,
        embedding_dim: int = 256,
        head_num: int = 2,
        mlp_num: int = 2,
        layer_num: int = 3,
        memory_len: int = 64,
        dropout_ratio: float = 0.0,
        activation: Activation = nn.ReLU,
        gru_gating: bool = True,
        gru_bias: float = 2.0,
        use_embedding_layer: bool = True,
    ) -> None:
        super().__init__()
        act = as_activation(activation) or nn.Identity()
        self.head_num = head_num
        self.head_dim = head_dim
        self.layer_num = layer_num
        self.embedding_dim = embedding_dim
        self.memory_len = memory_len
        self.use_embedding_layer = use_embedding_layer
        self.memory: Memory | None = None
        if use_embedding_layer:
            self.embedding = fc_block(input_dim, embedding_dim, activation=act)
        self.activation = act
        self.pos_embedding = PositionalEmbedding(embedding_dim)
        self.dropout = Dropout(dropout_ratio) if dropout_ratio > 0 else nn.Identity()
        self.layers = nn.Sequential()
        for _ in range(layer_num):
            layer = GatedTransformerXLLayer(
                embedding_dim, head_dim, embedding_dim, head_num, mlp_num, self.dropout, act, gru_gating, gru_bias
            )
            self.layers.append(layer)
        self.u = nn.Parameter(torch.zeros(head_num, head_dim))
        self.v = nn.Parameter(torch.zeros(head_num, head_dim))

    def reset_memory(self, batch_size: int | None = None, state: Tensor | None = None) -> None:
        """Fill the memory with zeros for `batch_size` samples, or with `state` [layer_num + 1, M, B, E].

        Without both, the next input gets a new memory of zeros.
        """
        if batch_size is None and state is None:
            self.memory = None
            return
        self.memory = Memory(self.memory_len, batch_size or 1, self.embedding_dim, self.layer_num, state)

    def get_memory(self) -> Tensor | None:
        """Return the memory [layer_num + 1, M, B, E], or None before there was any input."""
        return None if self.memory is None else self.memory.get()

    def forward(self, x: Tensor, batch_first: bool = False, return_mem: bool = True) -> dict[str, Tensor]:
        """Return `{'logit': [T, B, E], 'memory': [layer_num + 1, M, B, E]}` for a sequence [T, B, input_dim].

        Afterwards the memory of the module includes the sequence; the returned `memory` is the earlier one. A memory of
        another batch size is replaced by zeros, with a warning.

        Args:
            batch_first: whether `x` and the logit are [B, T, ...].
            return_mem: whether the result has `memory`.
        """
        if batch_first:
            x = x.transpose(0, 1)
        memory = self._memory_for(x)
        remembered = memory.get()
        steps, past = len(x), self.memory_len
        x = self.dropout(self.embedding(x)) if self.use_embedding_layer else x
        mask = torch.ones(steps, past + steps, dtype=torch.bool, device=x.device).triu(past + 1).unsqueeze(-1)
        positions = self.dropout(self.pos_embedding(torch.arange(past + steps - 1, -1, -1, device=x.device)))
        hidden = [x]
        for layer, layer_memory in zip(self.layers, remembered, strict=False):  # the last output is never attended to
            hidden.append(layer(hidden[-1], positions, self.u, self.v, layer_memory, mask))
        out = self.dropout(hidden[-1])
        memory.update(hidden)
        output = {"logit": out.transpose(0, 1) if batch_first else out}
        return {**output, "memory": remembered} if return_mem else output

    def _memory_for(self, x: Tensor) -> Memory:
        batch = x.shape[1]
        if self.memory is not None and self.memory.bs != batch:
            warnings.warn(
                f"the memory of {self.memory.bs} samples is replaced by zeros: the input has {batch}; call "
                "reset_memory() where a new batch begins",
                stacklevel=3,
            )
            self.memory = None
        if self.memory is None:
            self.reset_memory(batch)
        assert self.memory is not None
        self.memory.memory = self.memory.memory.to(x)
        return self.memory

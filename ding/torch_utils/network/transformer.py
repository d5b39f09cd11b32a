"""Transformer encoders over sets of entities (https://arxiv.org/abs/1706.03762)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ding.torch_utils.network.activation import Activation, as_activation
from ding.torch_utils.network.nn_module import MLP, fc_block


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
        self.dropout = nn.Dropout(dropout_ratio)

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
        self.dropout = nn.Dropout(dropout_ratio)
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

"""Gated transformers: the gating unit, memory, relative attention, and the whole network."""

import math

import torch

from ding.torch_utils.network.gtrxl import GRUGatingUnit, GTrXL, Memory, PositionalEmbedding


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_the_gate_is_that_of_a_gru():
    gate = GRUGatingUnit(1, bg=0.5)
    weights = {name: layer.weight.item() for name, layer in gate.named_children()}
    for x, y in ((0.3, -1.2), (2.0, 0.7)):
        r = sigmoid(weights["Wr"] * y + weights["Ur"] * x)
        z = sigmoid(weights["Wz"] * y + weights["Uz"] * x - 0.5)
        h = math.tanh(weights["Wg"] * y + weights["Ug"] * r * x)
        result = gate(torch.tensor([x]), torch.tensor([y])).item()
        assert math.isclose(result, (1 - z) * x + z * h, abs_tol=1e-6)


def test_parameters_have_the_documented_names_and_no_biases():
    state = GRUGatingUnit(3).state_dict()
    assert sorted(state) == sorted(["bg", *(f"{w}{g}.weight" for w in "WU" for g in "rzg")])
    assert state["bg"].tolist() == [2.0] * 3


def small(**kwargs):
    return GTrXL(**{"input_dim": 3, "head_dim": 2, "embedding_dim": 4, "layer_num": 2, "memory_len": 3, **kwargs})


def steps(number, batch=2, width=3):
    return torch.sin(torch.arange(number * batch * width, dtype=torch.float32)).reshape(number, batch, width)


def reference_layer(layer, inputs, memory, u, v):
    """The equations of the paper, one step and one head at a time."""
    attention, heads = layer.attention, layer.attention.head_num
    everything = torch.cat([memory, inputs])
    normed, past = layer.layernorm1(everything), len(memory)
    batch, width = inputs.shape[1], attention.head_dim
    positions = attention.project_pos(PositionalEmbedding(inputs.shape[2])(torch.arange(len(everything))))
    rows = []
    for step in range(len(inputs)):
        now = past + step
        query = attention.attention_q(inputs[step]).view(batch, heads, width)
        attended = torch.zeros(batch, heads, width)
        for b in range(batch):
            for h in range(heads):
                scores, values = [], []
                for other in range(now + 1):
                    key, value = attention.attention_kv(normed[other, b]).chunk(2)
                    key, value = key.view(heads, width)[h], value.view(heads, width)[h]
                    position = positions[now - other, 0].view(heads, width)[h]
                    score = (query[b, h] + u[h]) @ key + (query[b, h] + v[h]) @ position
                    scores.append(score / math.sqrt(width))
                    values.append(value)
                weights = torch.stack(scores).softmax(0)
                attended[b, h] = weights @ torch.stack(values)
        rows.append(attention.project(attended.view(batch, -1)).relu())
    x = layer.gate1(inputs, torch.stack(rows))
    return layer.gate2(x, layer.mlp(layer.layernorm2(x)))


def test_a_layer_computes_the_attention_of_the_paper():
    torch.manual_seed(0)
    model = small(layer_num=1, head_num=3)
    torch.nn.init.normal_(model.u), torch.nn.init.normal_(model.v)
    memory = torch.randn(2, 3, 2, 4)
    model.reset_memory(state=memory)
    x = steps(4)
    expected = reference_layer(model.layers[0], model.embedding(x), memory[0], model.u, model.v)
    torch.testing.assert_close(model(x)["logit"], expected)


def test_a_step_sees_nothing_of_what_comes_after_it():
    torch.manual_seed(0)
    model, x = small(), steps(4)
    changed = x.clone()
    changed[2:] = 7.0
    first = model(x)["logit"]
    model.reset_memory()
    second = model(changed)["logit"]
    assert torch.equal(first[:2], second[:2])
    assert not torch.allclose(first[2:], second[2:])


def test_the_result_has_the_memory_before_the_input_and_the_model_the_one_after():
    model = small()
    assert model.get_memory() is None
    before = model(steps(2))["memory"]
    assert before.shape == (3, 3, 2, 4)
    assert not before.any()
    after = model.get_memory()
    assert not after.requires_grad
    assert torch.equal(after[0, 1:], model.embedding(steps(2)))
    assert model(steps(1))["memory"] is after


def test_samples_may_come_first_and_the_memory_may_be_left_out():
    torch.manual_seed(0)
    model = small()
    expected = model(steps(5))["logit"]
    model.reset_memory()
    output = model(steps(5).transpose(0, 1), batch_first=True, return_mem=False)
    assert list(output) == ["logit"]
    assert torch.equal(output["logit"], expected.transpose(0, 1))


def test_parameters_of_the_transformer_have_the_documented_names():
    state = small(layer_num=1, mlp_num=1).state_dict()
    gates = [f"{gate}.{name}" for gate in ("gate1", "gate2") for name in GRUGatingUnit(4).state_dict()]
    linears = [f"attention.{name}.0" for name in ("attention_kv", "attention_q", "project", "project_pos")]
    linears += ["mlp.0.0", "layernorm1", "layernorm2"]
    layer = gates + [f"{name}.{part}" for name in linears for part in ("weight", "bias")]
    top = ["u", "v", "embedding.0.weight", "embedding.0.bias", "pos_embedding.inv_freq"]
    assert list(state) == top + [f"layers.0.{name}" for name in layer]
    assert state["layers.0.attention.attention_kv.0.weight"].shape == (8, 4)


def test_a_memory_keeps_the_last_steps_of_each_layer():
    memory = Memory(memory_len=3, batch_size=2, embedding_dim=1, layer_num=1)
    states = torch.arange(4.0).view(2, 2, 1)
    assert memory.update([states, states + 10])[:, :, 0, 0].tolist() == [[0, 0, 2], [0, 10, 12]]
    assert memory.update([states[:1] + 20, states[:1]])[:, :, 0, 0].tolist() == [[0, 2, 20], [10, 12, 0]]
    long = torch.arange(10.0).view(5, 2, 1)
    assert memory.update([long, long])[0, :, 1, 0].tolist() == [5, 7, 9]
    assert memory.get() is memory.memory
    memory.to("cpu")
    memory.init()
    assert not memory.get().any()

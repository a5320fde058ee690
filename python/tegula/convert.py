"""PyTorch checkpoints as Hugging Face directories: `python -m tegula.convert CHECKPOINT DIR`.

CHECKPOINT is a file of torch.save: a state dict of minGPT, a checkpoint of nanoGPT, or pytorch_model.bin (or its index)
with a config.json beside it. It is read with `weights_only`, so no code in it runs. DIR then holds config.json,
model.safetensors or shards, and the tokenizer's files that lay beside the checkpoint.
"""

import argparse
import json
import pathlib
import shutil
import struct
import sys

# Files beside a checkpoint that belong to the model.
COMPANIONS = (
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
# Buffers that older versions of the models saved.
BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
# Heads of the models of minGPT, GPT-2 and cutileGPT by layers and width: state dicts do not tell.
HEADS = {
    (3, 48): 3, (4, 64): 4, (4, 128): 4, (6, 128): 4, (6, 192): 6, (8, 256): 8, (8, 512): 16, (12, 768): 12, (24, 1024): 16,
    (36, 1280): 20, (48, 1600): 25,
}  # fmt: skip
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class ConversionError(Exception):
    """What was expected of a checkpoint, and what was found."""


def load_file(path):
    """What torch.save wrote, its tensors mapped where the file's format allows it."""
    import torch

    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # files of before PyTorch 1.6 cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConversionError(f"{path}: expected to read it, got {error.strerror or error}") from None
    except Exception as error:  # unpickling raises whatever damaged bytes lead to
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConversionError(f"{path}: expected tensors that torch.load reads with weights_only, got: {reason}") from None


def find_state(loaded, path):
    """The state dict in what a file holds, and nanoGPT's model_args."""
    import torch

    if not isinstance(loaded, dict):
        raise ConversionError(f"{path}: expected a state dict, got {type(loaded).__name__}")
    args = loaded.get("model_args")
    for key in ("model", "state_dict", "model_state_dict"):
        if isinstance(loaded.get(key), dict):
            loaded = loaded[key]
            break
    state = {}
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ConversionError(f"{path}: {name}: expected a tensor, got {type(tensor).__name__}")
        for prefix in ("_orig_mod.", "module."):  # of torch.compile and of DDP
            name = name.removeprefix(prefix)
        state[name] = tensor
    if not state:
        raise ConversionError(f"{path}: expected a state dict, got no tensors")
    return state, args if isinstance(args, dict) else None


def read_checkpoint(path):
    """State dict and model_args of a file, of the shards of an index, or of either in a directory."""
    if path.is_dir():
        names = ("pytorch_model.bin", "pytorch_model.bin.index.json")
        path = next((path / name for name in names if (path / name).exists()), path / names[0])
    if not path.name.endswith(".index.json"):
        return find_state(load_file(path), path)
    state = {}
    index = read_json(path).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise ConversionError(f"{path}: weight_map: expected file names by tensor, got {json.dumps(index)[:60]}")
    for name in sorted(set(index.values())):
        if pathlib.PurePath(name).name != name:
            raise ConversionError(f"{path}: weight_map: expected files in the directory itself, got {name}")
        state.update(find_state(load_file(path.parent / name), path.parent / name)[0])
    return state, None


def read_json(path):
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise ConversionError(f"{path}: expected to read it, got {error.strerror}") from None
    except ValueError as error:
        raise ConversionError(f"{path}: expected JSON, got: {error}") from None
    if not isinstance(value, dict):
        raise ConversionError(f"{path}: expected an object, got {type(value).__name__}")
    return value


# ---- what a model has ----


def gpt2_shapes(config):
    """Name -> shape, as transformers has them: weights of Conv1D are [in, out]."""
    width, inner = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]
    positions = config.get("n_positions") or config["n_ctx"]
    shapes = {"wte.weight": (config["vocab_size"], width), "wpe.weight": (positions, width)}
    for i in range(config["n_layer"]):
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h.{i}.{norm}.weight": (width,), f"h.{i}.{norm}.bias": (width,)}
        for name, rows, cols in (
            ("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width), ("mlp.c_fc", width, inner), ("mlp.c_proj", inner, width),
        ):  # fmt: skip
            shapes |= {f"h.{i}.{name}.weight": (rows, cols), f"h.{i}.{name}.bias": (cols,)}
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    return {f"transformer.{name}": shape for name, shape in shapes.items()}


def llama_shapes(config):
    """The same for Llama, Qwen2 and Qwen3."""
    kind, width, inner = config["model_type"], config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or (128 if kind == "qwen3" else width // heads)
    q, kv = heads * dim, (config.get("num_key_value_heads") or heads) * dim
    biased = kind == "qwen2" or config.get("attention_bias", False)
    shapes = {"embed_tokens.weight": (config["vocab_size"], width)}
    for i in range(config["num_hidden_layers"]):
        at = f"layers.{i}."
        shapes |= {f"{at}input_layernorm.weight": (width,), f"{at}post_attention_layernorm.weight": (width,)}
        for name, rows, cols, bias in (
            ("self_attn.q_proj", q, width, biased), ("self_attn.k_proj", kv, width, biased), ("self_attn.v_proj", kv, width, biased),
            ("self_attn.o_proj", width, q, biased and kind != "qwen2"), ("mlp.gate_proj", inner, width, config.get("mlp_bias", False)),
            ("mlp.up_proj", inner, width, config.get("mlp_bias", False)), ("mlp.down_proj", width, inner, config.get("mlp_bias", False)),
        ):  # fmt: skip
            shapes[f"{at}{name}.weight"] = (rows, cols)
            if bias:
                shapes[f"{at}{name}.bias"] = (rows,)
        if kind == "qwen3":
            shapes |= {f"{at}self_attn.q_norm.weight": (dim,), f"{at}self_attn.k_norm.weight": (dim,)}
    shapes["norm.weight"] = (width,)
    return {f"model.{name}": shape for name, shape in shapes.items()}


FAMILIES = {  # model_type -> shapes, the names' prefix, the name of the token table
    "gpt2": (gpt2_shapes, "transformer.", "transformer.wte.weight"),
    **dict.fromkeys(("llama", "qwen2", "qwen3"), (llama_shapes, "model.", "model.embed_tokens.weight")),
}


def shapes_of(config, path):
    try:
        return FAMILIES[config["model_type"]][0](config)
    except KeyError as error:
        known = ", ".join(FAMILIES)
        wrong = config.get("model_type") if error.args[0] == config.get("model_type") else None
        raise ConversionError(
            f"{path}: model_type: expected one of {known}, got {wrong}" if wrong else f"{path}: expected the key {error.args[0]}, got none"
        ) from None


def is_turned(state):
    """Whether matrices are [out, in], as in minGPT and nanoGPT, instead of Conv1D's [in, out]."""
    weight = state.get("transformer.h.0.attn.c_attn.weight")
    return weight is not None and weight.ndim == 2 and weight.shape[0] == 3 * weight.shape[1]


def gpt2_config(state, args, heads, activation, path):
    """The configuration that a state dict of GPT-2's shape implies."""
    wte, wpe = (state.get(f"transformer.{name}.weight") for name in ("wte", "wpe"))
    for name, tensor in (("wte", wte), ("wpe", wpe)):
        if tensor is None or tensor.ndim != 2:
            got = "none" if tensor is None else list(tensor.shape)
            raise ConversionError(
                f"{path}: transformer.{name}.weight: expected a matrix of minGPT, nanoGPT or GPT-2 (other models need a config.json "
                f"beside the checkpoint), got {got}"
            )
    layers = 1 + max((int(name.split(".")[2]) for name in state if name.startswith("transformer.h.")), default=-1)
    width = wte.shape[1]
    heads = heads or (args or {}).get("n_head") or HEADS.get((layers, width))
    if not heads:
        raise ConversionError(f"{path}: expected --heads N, as a state dict of {layers} layers and width {width} does not tell, got none")
    if not isinstance(heads, int) or width % heads:
        raise ConversionError(f"{path}: expected a number of heads that divides the width {width}, got {heads}")
    inner = state.get("transformer.h.0.mlp.c_fc.weight")
    inner = inner.shape[0 if is_turned(state) else 1] if inner is not None and inner.ndim == 2 else 4 * width
    # nanoGPT has the exact GELU, minGPT and GPT-2 its approximation by tanh.
    activation = activation or ("gelu" if args else "gelu_new")
    end = 50256 if wte.shape[0] > 50256 else None
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": activation, "vocab_size": wte.shape[0],
        "n_positions": wpe.shape[0], "n_embd": width, "n_layer": layers, "n_head": heads,
        "n_inner": None if inner == 4 * width else inner, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "attn_pdrop": 0.0,
        "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": end, "eos_token_id": end, "tie_word_embeddings": True,
    }  # fmt: skip


# ---- converting ----


def with_prefix(state, prefix):
    """Names of a bare model (`h.0..`, `layers.0..`) get the prefix that they have in the whole one."""
    return {name if name.startswith(prefix) or name.startswith("lm_head.") else prefix + name: tensor for name, tensor in state.items()}


def convert_state(state, config, path):
    """Name -> tensor as transformers has them. Sets tie_word_embeddings where the model has a head of its own."""
    import torch

    _, prefix, table = FAMILIES[config["model_type"]]
    shapes = shapes_of(config, path)
    turned, out = config["model_type"] == "gpt2" and is_turned(state), {}
    bare = turned and not any(name.endswith("ln_f.bias") for name in state)  # nanoGPT's bias=False
    for name, shape in shapes.items():
        tensor = state.pop(name, None)
        if tensor is None and bare and name.endswith(".bias"):
            tensor = torch.zeros(shape, dtype=state.get(table, out.get(table)).dtype)
        elif tensor is not None and turned and tensor.ndim == 2 and ".h." in name:
            tensor = tensor.t()
        check_tensor(tensor, name, shape, path)
        out[name] = tensor
    head = state.pop("lm_head.weight", None)
    if head is not None:
        check_tensor(head, "lm_head.weight", shapes[table], path)
        tied = config.get("tie_word_embeddings", config["model_type"] == "gpt2")
        if not (tied and torch.equal(head, out[table])):
            out["lm_head.weight"] = head
    elif not config.get("tie_word_embeddings", config["model_type"] == "gpt2"):
        raise ConversionError(f"{path}: lm_head.weight: expected a tensor, as tie_word_embeddings is false, got none")
    config["tie_word_embeddings"] = "lm_head.weight" not in out
    for name, tensor in state.items():
        if not name.endswith(BUFFERS):
            kind = config["model_type"]
            raise ConversionError(f"{path}: {name}: expected no such tensor in a model of {kind}, got {list(tensor.shape)}")
    return out


def check_tensor(tensor, name, shape, path):
    if tensor is None:
        raise ConversionError(f"{path}: {name}: expected {list(shape)}, got no such tensor")
    if tuple(tensor.shape) != tuple(shape) or not tensor.is_floating_point():
        raise ConversionError(f"{path}: {name}: expected floats {list(shape)}, got {tensor.dtype} {list(tensor.shape)}")


# ---- writing ----


def dtype_names():
    import torch

    return {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_safetensors(path, tensors, dtype):
    """One file; tensors are converted and written one after the other."""
    import torch

    header, at = {"__metadata__": {"format": "pt"}}, 0
    size = torch.empty((), dtype=dtype).element_size()
    for name, tensor in tensors.items():
        end = at + tensor.numel() * size
        header[name] = {"dtype": dtype_names()[dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.to(dtype).contiguous().view(torch.uint8).numpy())


def split(tensors, size, most):
    """Shards of at most `most` bytes; a larger tensor has one for itself."""
    shards, used = [{}], 0
    for name, tensor in tensors.items():
        count = tensor.numel() * size
        if shards[-1] and used + count > most:
            shards.append({})
            used = 0
        shards[-1][name] = tensor
        used += count
    return shards


def write_model(directory, tensors, dtype, most, config):
    """Weights and config.json under other names first, then all of them in the place of what was there."""
    import torch

    size = torch.empty((), dtype=dtype).element_size()
    shards = split(tensors, size, most)
    names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    names = names if len(shards) > 1 else ["model.safetensors"]
    texts = {"config.json": config}
    if len(shards) > 1:
        total = sum(tensor.numel() for tensor in tensors.values())
        places = {tensor: name for name, shard in zip(names, shards) for tensor in shard}
        metadata = {"total_parameters": total, "total_size": total * size}
        texts = {"model.safetensors.index.json": {"metadata": metadata, "weight_map": dict(sorted(places.items()))}, **texts}
    for name, shard in zip(names, shards):
        write_safetensors(directory / f"{name}.part", shard, dtype)
    for name, value in texts.items():
        (directory / f"{name}.part").write_text(json.dumps(value, indent=2) + "\n")
    for old in [*directory.glob("model-*-of-*.safetensors"), directory / "model.safetensors.index.json", directory / "model.safetensors"]:
        old.unlink(missing_ok=True)
    for name in [*names, *texts]:
        (directory / f"{name}.part").replace(directory / name)


def copy_companions(sources, directory):
    for source in sources:
        for name in COMPANIONS:
            if (source / name).is_file() and (source / name).resolve() != (directory / name).resolve():
                shutil.copyfile(source / name, directory / name)


def convert(checkpoint, directory, *, heads=None, activation=None, dtype=None, max_shard_bytes=5 * 10**9, tokenizer=None, overwrite=False):
    """
    Writes the model in `checkpoint` to `directory`, and returns its configuration.

    heads, activation: of minGPT's and nanoGPT's models, where the checkpoint does not say them. dtype: a torch dtype, else
    that of the token table. tokenizer: a directory whose tokenizer's files are copied. Raises ConversionError.
    """
    import torch

    checkpoint, directory = pathlib.Path(checkpoint), pathlib.Path(directory)
    if (directory / "config.json").exists() and not overwrite:
        raise ConversionError(f"{directory}: expected a directory without a model (or --overwrite), got the model in it")
    state, args = read_checkpoint(checkpoint)
    beside = checkpoint if checkpoint.is_dir() else checkpoint.parent
    turned = is_turned(with_prefix(state, "transformer."))  # as no model of transformers is
    described = (beside / "config.json").is_file() and args is None and not turned
    if described:
        config = read_json(beside / "config.json")
        shapes_of(config, beside / "config.json")
        state = with_prefix(state, FAMILIES[config["model_type"]][1])
    else:
        state = with_prefix(state, "transformer.")
        config = gpt2_config(state, args, heads, activation, checkpoint)
    table = FAMILIES[config["model_type"]][2]
    tensors = convert_state(state, config, checkpoint)
    kept = tensors[table].dtype if tensors[table].dtype in dtype_names() else torch.float32
    config["dtype"] = str(dtype or kept).removeprefix("torch.")
    config.pop("torch_dtype", None)
    directory.mkdir(exist_ok=True)
    write_model(directory, tensors, dtype or kept, max_shard_bytes, config)
    copy_companions(([beside] if described else []) + ([pathlib.Path(tokenizer)] if tokenizer else []), directory)
    return config


def parse_size(text):
    unit = text.lstrip("0123456789.")
    try:
        size = float(text.removesuffix(unit)) * UNITS[unit]
    except (KeyError, ValueError):
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"expected a size such as 5GB, got {text}")
    return int(size)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tegula.convert", description=__doc__.split("\n\n")[0])
    parser.add_argument("checkpoint", help="a file of torch.save, an index of shards, or a directory with pytorch_model.bin")
    parser.add_argument("directory", help="what is written")
    parser.add_argument("--heads", type=int, help="attention heads of a state dict without configuration")
    parser.add_argument("--activation", choices=("gelu", "gelu_new"), help="of minGPT (gelu_new) and nanoGPT (gelu) where it is another")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16"), help="of the weights (that of the token table)")
    parser.add_argument("--max-shard-size", type=parse_size, default=5 * 10**9, metavar="SIZE", help="largest file (5GB)")
    parser.add_argument("--tokenizer", metavar="DIR", help="a directory whose tokenizer is copied")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in the directory")
    given = parser.parse_args(arguments)
    try:
        import torch
    except ImportError:
        print("tegula.convert: expected PyTorch, which reads its own files, got none", file=sys.stderr)
        return 1
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, None: None}[given.dtype]
    try:
        config = convert(
            given.checkpoint, given.directory, heads=given.heads, activation=given.activation, dtype=dtype,
            max_shard_bytes=given.max_shard_size, tokenizer=given.tokenizer, overwrite=given.overwrite,
        )  # fmt: skip
    except (ConversionError, OSError) as error:
        print(f"tegula.convert: {error}", file=sys.stderr)
        return 1
    layers = config.get("n_layer") or config.get("num_hidden_layers")
    heads = config.get("n_head") or config.get("num_attention_heads")
    head = "tied" if config["tie_word_embeddings"] else "its own"
    print(f"{given.directory}: {config['model_type']}, {layers} layers, {heads} heads, head {head}, {config['dtype']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

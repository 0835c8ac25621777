"""Reads what vendor_write wrote with the libraries of those who invented the formats, and compares
their values with ours. Prints a line for each method; exit status 1 if any differs or a library is
missing. Methods that no package reads are listed as such.

vendor_check.py FOLDER [--without-torch]: the latter leaves out, and says so, what needs torch.
"""
import json
import os
import struct
import sys

import gguf
import ml_dtypes
import numpy as np

FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
          "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu, "I64": np.int64,
          "I32": np.int32, "I8": np.int8, "U8": np.uint8}


def read(path):
    """Tensors and metadata of a safetensors file, without torch."""
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    meta = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = data[8 + size + begin:8 + size + end]
        tensors[name] = np.frombuffer(raw, FLOATS[entry["dtype"]]).reshape(entry["shape"])
    return tensors, meta


def differs(ours, theirs, bound):
    """The first index beyond the bound, or None."""
    bad = ~(np.abs(ours - theirs) <= bound)
    return tuple(int(i[0]) for i in np.nonzero(bad)) if bad.any() else None


def by_gguf(folder, name, values):
    tensor = gguf.GGUFReader(os.path.join(folder, name + ".gguf")).tensors[0]
    theirs = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
    block = gguf.GGML_QUANT_SIZES[tensor.tensor_type][0]
    # gguf-py works in float: 2^-21 of the block's largest value.
    largest = np.abs(values.reshape(values.shape[0], -1, block)).max(-1).repeat(block, -1)
    return theirs.reshape(values.shape), 2.0 ** -21 * largest


def nibbles(packed):
    """E2M1, two in a byte, low nibble first, by ml_dtypes."""
    packed = packed.view(np.uint8).reshape(packed.shape[0], -1)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
    return codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def by_ml_dtypes(name, t):
    """Formats whose elements ml_dtypes has; where they lie is written here."""
    if name in ("gptoss-mxfp4", "quark-mxfp4", "deepseek-v4-mxfp4"):
        codes = t.get("m_blocks", t.get("m.weight"))
        scale = next(t[k] for k in ("m_scales", "m.weight_scale", "m.scale") if k in t)
        exponents = scale.view(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
        return nibbles(codes) * exponents.repeat(32, 1)
    if name.endswith("-fnuz"):
        codes = t["m.weight"].view(np.uint8).view(ml_dtypes.float8_e4m3fnuz).astype(np.float64)
        scale = t.get("m.weight_scale", t.get("m.weight_scale_inv")).astype(np.float64)
        block = 1 if scale.shape[0] == codes.shape[0] else 128
        width = codes.shape[1] if block == 1 else 128
        whole = scale.repeat(block, 0)[:codes.shape[0]].repeat(width, 1)[:, :codes.shape[1]]
        return codes * whole
    if name in ("bf16", "f16", "f32"):
        return t["m.weight"].astype(np.float64)
    return None


def by_compressed_tensors(name, t, config):
    """compressed-tensors' own compressors and converters; None where it has none."""
    import torch
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.compressors.mx_utils import decompress_mx_scale
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
    from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import (
        FP8BlockDequantizer)
    from compressed_tensors.entrypoints.convert.converters.modelopt_nvfp4 import (
        ModelOptNvfp4Converter)
    from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig,
                                                 QuantizationScheme)
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    def tensor(a):
        if a.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(a.view(np.int16).copy()).view(torch.bfloat16)
        if a.dtype == ml_dtypes.float8_e4m3fn:
            return torch.from_numpy(a.view(np.uint8).copy()).view(torch.float8_e4m3fn)
        return torch.from_numpy(a.copy())

    t = {k[2:]: tensor(a) for k, a in t.items() if k.startswith("m.")}
    n, k = 64, 512
    if name.startswith("awq-"):
        group = config["group_size"]
        conv = AutoAWQConverter(group_size=group, ignore=[])
        t = {key[2:]: a for key, a in conv.process({"m." + key: a for key, a in t.items()}).items()}
        t["weight_scale"] = t["weight_scale"].double()
        args = QuantizationArgs(num_bits=4, type="int", symmetric=False, group_size=group,
                                strategy="group")
        packed = BaseCompressor.get_value_from_registry("pack-quantized")
        return packed.decompress(t, QuantizationScheme(targets=["Linear"], weights=args))["weight"]
    if name == "modelopt-nvfp4":
        conv = ModelOptNvfp4Converter(targets=["re:.*m$"])
        t = {key[2:]: a for key, a in conv.process({"m." + key: a for key, a in t.items()}).items()}
        args = QuantizationArgs(num_bits=4, type="float", symmetric=True, group_size=16,
                                strategy="tensor_group")
        codes = unpack_fp4_from_uint8(t["weight_packed"], n, k, dtype=torch.float64)
        return dequantize(codes, t["weight_scale"].double(), args=args, dtype=torch.float64,
                          global_scale=t["weight_global_scale"].double())
    if name.startswith("deepseek-fp8-block"):
        b = config["weight_block_size"]
        d = FP8BlockDequantizer(targets=["Linear"], weight_block_size=tuple(b), dtype=torch.float64)
        one = torch.ones_like(t["weight_scale_inv"])
        codes = d.process({"m.weight": t["weight"], "m.weight_scale_inv": one})["m.weight"]
        scale = t["weight_scale_inv"].double()
        return codes * scale.repeat_interleave(b[0], 0)[:n].repeat_interleave(b[1], 1)[:, :k]
    if not name.startswith("ct-") or name.startswith("ct-old-"):
        return None
    if name.endswith("actorder-group"):
        # This version no longer has act-order: its packing, and the group of each column by hand.
        codes = unpack_from_int32(t["weight_packed"], 4, (n, k)).double()
        groups = t["weight_g_idx"].long()
        if "weight_zero_point" in t:
            zeros = unpack_from_int32(t["weight_zero_point"], 4, (n, k // 32), packed_dim=0)
            codes = codes - zeros.double()[:, groups]
        return codes * t["weight_scale"].double()[:, groups]
    QuantizationConfig.model_validate({k: v for k, v in config.items() if k != "fmt"})
    scheme = QuantizationScheme.model_validate(config["config_groups"]["group_0"])
    if name == "ct-nvfp4":
        codes = unpack_fp4_from_uint8(t["weight_packed"], n, k, dtype=torch.float64)
        return dequantize(codes, t["weight_scale"].double(), args=scheme.weights,
                          dtype=torch.float64, global_scale=t["weight_global_scale"].double())
    if name in ("ct-mxfp4", "ct-mxfp8"):
        scale = decompress_mx_scale(t["weight_scale"]).double()
        codes = (unpack_fp4_from_uint8(t["weight_packed"], n, k, dtype=torch.float64)
                 if name == "ct-mxfp4" else t["weight"])
        return dequantize(codes, scale, args=scheme.weights, dtype=torch.float64)
    compressor = BaseCompressor.get_value_from_registry(config["format"])
    return compressor.decompress(dict(t, weight_scale=t["weight_scale"].double()),
                                 scheme)["weight"]


def check(folder, name, with_torch):
    tensors, meta = read(os.path.join(folder, name + ".safetensors"))
    values, bound = tensors["values"], np.zeros_like(tensors["values"])
    config = json.loads(meta["config"]) if meta["config"] else {}
    if name.startswith("gguf-"):
        reader, (theirs, bound) = "gguf", by_gguf(folder, name, values)
    else:
        reader, theirs = "ml_dtypes", by_ml_dtypes(name, tensors)
    if theirs is None:
        if not with_torch:
            return "NOT RUN (without torch)"
        reader, theirs = "compressed-tensors", by_compressed_tensors(name, tensors, config)
        if theirs is None:
            return "no package here reads it"
        theirs = theirs.double().numpy()
    if name == "modelopt-nvfp4":
        bound = 2.0 ** -23 * np.abs(values)  # the converter rounds the reciprocal of a scale
    at = differs(values, theirs, bound)
    if at is None and np.abs(values).max() > 0:
        # The comparison can fail.
        assert differs(values * (1 + 2.0 ** -8), theirs, bound) is not None
        return "equal by " + reader
    return f"DIFFERS by {reader} at {at}: {values[at]} here, {theirs[at]} there"


def main():
    folder, with_torch = sys.argv[1], "--without-torch" not in sys.argv
    names = sorted(f[:-12] for f in os.listdir(folder) if f.endswith(".safetensors"))
    results = {name: check(folder, name, with_torch) for name in names}
    for name, result in results.items():
        print(f"{name:36} {result}")
    equal = sum(r.startswith("equal") for r in results.values())
    wrong = sum(r.startswith("DIFFERS") for r in results.values())
    print(f"{equal} equal, {wrong} differ, {len(results) - equal - wrong} not read")
    return 1 if wrong or not equal else 0


if __name__ == "__main__":
    sys.exit(main())

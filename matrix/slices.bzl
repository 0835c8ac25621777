"""Matrix rows as test targets: one a row, model and tier, its cells inside."""

load("@matrix_rows//:rows.bzl", "ROWS")

def _name(words):
    return "_".join([word.replace("-", "_") for word in words if word])

def matrix_slices():
    for row in ROWS:
        for model in row["cross"]["model"]:
            for tier in row["cross"].get("tier", [""]):
                arguments = ["--matrix", "matrix/" + row["file"], "--row", row["name"], "--model", model]
                if tier:
                    arguments += ["--tier", tier]
                native.sh_test(
                    name = _name([row["name"], model, tier]),
                    size = "medium",
                    srcs = ["slice.sh"],
                    args = arguments,
                    data = [
                        row["file"],
                        "//goldens:checkpoints",
                        "//goldens:goldens",
                        "//goldens:quantised",
                        "//harness/cli:slice",
                    ],
                    tags = row.get("tags", []) + ["model=" + model, "kind=" + row["kind"]] +
                           (["tier=" + tier] if tier else []),
                )

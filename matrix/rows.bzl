"""@matrix_rows: the rows of the matrix files as Starlark data.

A BUILD macro cannot read a file; a repository rule can. It re-runs by itself when
a file changes.
"""

def _matrix_rows(ctx):
    rows = []
    for label in ctx.attr.files:
        for row in json.decode(ctx.read(ctx.path(label)))["rows"]:
            row["file"] = label.name
            rows.append(row)
    ctx.file("BUILD", "")
    ctx.file("rows.bzl", "ROWS = " + repr(rows) + "\n")

matrix_rows = repository_rule(
    implementation = _matrix_rows,
    attrs = {"files": attr.label_list(mandatory = True)},
    local = True,
)

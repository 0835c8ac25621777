"""A test whose whole program, dependencies included, is built under ASan and UBSan, in any
configuration: `bazel test //...` runs it as it is."""

_FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g1"]

def _sanitize_impl(settings, attr):
    return {
        "//command_line_option:copt": settings["//command_line_option:copt"] + _FLAGS,
        "//command_line_option:linkopt": settings["//command_line_option:linkopt"] + ["-fsanitize=address,undefined"],
        "//command_line_option:platform_suffix": "sanitized",
        "//command_line_option:strip": "never",
    }

_sanitize = transition(
    implementation = _sanitize_impl,
    inputs = ["//command_line_option:copt", "//command_line_option:linkopt"],
    outputs = [
        "//command_line_option:copt",
        "//command_line_option:linkopt",
        "//command_line_option:platform_suffix",
        "//command_line_option:strip",
    ],
)

def _sanitized_test_impl(ctx):
    program = ctx.attr.test[0]
    link = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = link, target_file = program[DefaultInfo].files_to_run.executable, is_executable = True)
    return [DefaultInfo(executable = link, runfiles = program[DefaultInfo].default_runfiles)]

sanitized_test = rule(
    implementation = _sanitized_test_impl,
    test = True,
    attrs = {
        "test": attr.label(cfg = _sanitize, mandatory = True, doc = "a cc_test, tagged manual"),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)

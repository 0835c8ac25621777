"""@sys: one cc_library per system library, with nothing but its link flags.

Headers in /usr/include are on the compiler's own path already. A library whose
header is missing becomes a target whose build fails and names the package, so
that only what needs it is affected.
"""

_LIBRARIES = {
    # name: (a header that must exist, Debian package, link flags)
    "benchmark": ("benchmark/benchmark.h", "libbenchmark-dev", ["-lbenchmark", "-lpthread"]),
    "cli11": ("CLI/CLI.hpp", "libcli11-dev", []),
    "dl": ("dlfcn.h", "libc6-dev", ["-ldl"]),
    "fmt": ("fmt/format.h", "libfmt-dev", ["-lfmt"]),
    "gtest": ("gtest/gtest.h", "libgtest-dev", ["-lgtest", "-lpthread"]),
    "json": ("nlohmann/json.hpp", "nlohmann-json3-dev", []),
    "pthread": ("pthread.h", "libc6-dev", ["-lpthread"]),
    "simde": ("simde/x86/avx512.h", "libsimde-dev", []),
    "sodium": ("sodium.h", "libsodium-dev", ["-lsodium"]),
    "xxhash": ("xxhash.h", "libxxhash-dev", ["-lxxhash"]),
}

def _system_libraries(ctx):
    build = ["package(default_visibility = [\"//visibility:public\"])"]
    for name, (header, package, flags) in _LIBRARIES.items():
        if ctx.path("/usr/include/" + header).exists or \
           ctx.path("/usr/include/x86_64-linux-gnu/" + header).exists:
            build.append("cc_library(name = \"%s\", linkopts = %s)" % (name, repr(flags)))
        else:
            build.append(
                ("genrule(name = \"%s_missing\", outs = [\"%s_missing.h\"], " +
                 "cmd = \"echo 'install the package %s' >&2; exit 1\")") % (name, name, package),
            )
            build.append("cc_library(name = \"%s\", hdrs = [\"%s_missing.h\"])" % (name, name))
    ctx.file("BUILD", "\n".join(build) + "\n")

system_libraries = repository_rule(
    implementation = _system_libraries,
    configure = True,
    local = True,
)

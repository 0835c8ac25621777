/* The example engine with one oddity, which the environment variable ODD_ENGINE names: for tests of
 * what the harness makes of it. Without the variable it is the example engine. */
#define assay_engine_get example_engine_get
#include "example_engine.c"
#undef assay_engine_get

#include <signal.h>
#include <unistd.h>

static int odd(const char* name) {
  const char* chosen = getenv("ODD_ENGINE");
  return chosen != NULL && strcmp(chosen, name) == 0;
}

static const assay_host* real_host;
static pid_t harness; /* what started the process that the engine runs in */

/* Records that were never asked for, or none. */
static void odd_executed(void* context, const assay_executed* record) {
  assay_executed changed = *record;
  if (odd("silent")) return;
  if (odd("other-tier")) changed.tier = "avx2";
  real_host->executed(context, &changed);
}

static int odd_open(const assay_open* request, const assay_host* host, assay_session** session,
                    assay_error* error) {
  static assay_host changed;
  if (odd("refuse-open")) return fail(error, ASSAY_REFUSED, "not on a Monday", "open");
  if (odd("refuse-heads")) return fail(error, ASSAY_REFUSED, "9 heads over 2 ranks", "open");
  harness = getppid();
  real_host = host;
  changed = *host;
  changed.executed = odd_executed;
  return open_session(request, &changed, session, error);
}

static int odd_load(assay_session* session, const assay_load* request, assay_error* error) {
  if (odd("crash-load")) raise(SIGSEGV);
  if (odd("refuse-load")) return fail(error, ASSAY_REFUSED, "does not divide", "lm_head.weight");
  if (odd("accept-all")) {
    add(session, "L0.mlp.up.weight", request->rank, 1, 1);
    return ASSAY_OK;
  }
  return load(session, request, error);
}

static int odd_export(assay_session* session, int32_t rank, const char* component, assay_shard* out,
                      assay_error* error) {
  const int status = export_shard(session, rank, component, out, error);
  if (odd("own-layout")) out->layout = "mine";
  if (odd("wrong-size")) out->layout = "vnni";
  return status;
}

static int odd_run_op(assay_session* session, const assay_op* request, assay_error* error) {
  if (odd("crash-run")) raise(SIGSEGV);
  if (odd("exit")) _exit(0);
  if (odd("kill-parent")) kill(harness, SIGKILL);
  if (odd("fail")) return fail(error, ASSAY_FAILED, "no luck", request->tap);
  if (odd("unsupported")) return fail(error, ASSAY_UNSUPPORTED, "not that", request->tap);
  while (odd("hang")) {
  }
  const int status = run_op(session, request, error);
  if (odd("write-input")) ((char*)request->inputs[0].data)[0] ^= 1;
  return status;
}

const assay_engine* assay_engine_get(uint32_t version) {
  static assay_engine changed;
  if (version < ASSAY_ABI_VERSION) return NULL;
  changed = engine;
  changed.open = odd_open;
  changed.load = odd_load;
  changed.run_op = odd_run_op;
  changed.export_shard = odd("no-export") ? NULL : odd_export;
  return &changed;
}

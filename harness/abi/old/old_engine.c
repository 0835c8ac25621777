/* A tiny engine that only knows the frozen header: it multiplies by the one number it was given.
 * It uses every structure and every function of the host. */
#include <stdio.h>
#include <string.h>

#include "assay_engine_v1.h"

struct assay_session {
  const assay_host* host;
  float factor;
};
static struct assay_session only;

static int open_session(const assay_open* request, const assay_host* host, assay_session** out,
                        assay_error* error) {
  if (strcmp(request->method, "bf16") != 0) {
    snprintf(error->message, sizeof error->message, "no method %s", request->method);
    return ASSAY_UNSUPPORTED;
  }
  only.host = host;
  *out = &only;
  return ASSAY_OK;
}

static int load(assay_session* session, const assay_load* request, assay_error* error) {
  if (request->tensor_count != 1) {
    snprintf(error->tensor, sizeof error->tensor, "%s", request->plan);
    error->got = request->tensor_count;
    error->expected = 1;
    return ASSAY_REFUSED;
  }
  memcpy(&session->factor, request->tensors[0].data, sizeof session->factor);
  return ASSAY_OK;
}

static int export_shard(assay_session* session, int32_t rank, const char* component,
                        assay_shard* out, assay_error* error) {
  (void)rank, (void)component, (void)error;
  out->layout = "row";
  out->dtype = ASSAY_F32;
  out->total_rows = out->rows = out->columns = 1;
  out->data = &session->factor;
  out->bytes = sizeof session->factor;
  return ASSAY_OK;
}

static void multiply(const assay_session* session, const assay_tensor* x, float* y) {
  for (uint64_t i = 0; i < x->bytes / sizeof(float); ++i) {
    y[i] = session->factor * ((const float*)x->data)[i];
  }
}

static int run_op(assay_session* session, const assay_op* request, assay_error* error) {
  (void)error;
  multiply(session, &request->inputs[0], request->outputs[0].data);
  const assay_executed executed = {.size = sizeof executed,
                                   .tap = request->tap,
                                   .rank = request->rank,
                                   .kernel = "old",
                                   .tier = "scalar",
                                   .layout = "row",
                                   .act = "a32",
                                   .threads = 1};
  session->host->executed(session->host->context, &executed);
  return ASSAY_OK;
}

static int run(assay_session* session, const assay_run* request, assay_error* error) {
  (void)error;
  const assay_host* host = session->host;
  float* scratch = host->alloc(host->context, request->inputs[0].bytes, sizeof(float));
  if (scratch == NULL) return ASSAY_FAILED;
  multiply(session, &request->inputs[0], scratch);
  assay_tensor tap = request->inputs[0];
  tap.size = sizeof tap;
  tap.name = "L0.residual_mlp";
  tap.data = scratch;
  host->tap(host->context, &tap);
  host->free(host->context, scratch);
  return ASSAY_OK;
}

static int reduce(assay_session* session, const assay_reduce* request, assay_error* error) {
  (void)session, (void)error;
  float* out = request->output->data;
  for (uint64_t i = 0; i < request->output->bytes / sizeof(float); ++i) {
    out[i] = 0;
    for (uint32_t rank = 0; rank < request->rank_count; ++rank) {
      out[i] += ((const float*)request->inputs[rank].data)[i];
    }
  }
  return ASSAY_OK;
}

static const char* describe(void) { return "{\"methods\": [\"bf16\"]}"; }

static const assay_engine engine = {.size = sizeof engine,
                                    .version = ASSAY_ABI_VERSION,
                                    .name = "old",
                                    .revision = "v1",
                                    .describe = describe,
                                    .open = open_session,
                                    .load = load,
                                    .export_shard = export_shard,
                                    .run_op = run_op,
                                    .run = run,
                                    .reduce = reduce};

const assay_engine* assay_engine_get(uint32_t version) {
  return version >= engine.version ? &engine : NULL;
}

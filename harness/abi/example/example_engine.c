/* A whole engine for Assay in one file: linear ops on dense bf16 weights at any tensor-parallel
 * degree, scalar. README.md walks through it. Build it anywhere:
 *     gcc -shared -fPIC -I harness/abi example_engine.c -o libexample.so
 * With -DMISTAKE_TAIL it drops the last 8 terms of every sum; with -DMISTAKE_RANK every rank takes
 * rank 0's part: for seeing what Assay says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assay_engine.h"

typedef struct part { /* what one rank holds of one component, row major */
  struct part* next;
  char name[256];
  int32_t rank;
  int64_t rows, columns;
  uint16_t* data;
} part;

struct assay_session {
  const assay_host* host;
  int32_t tp, attn_tp;
  part* parts;
};

static const char* describe(void) {
  return "{\"methods\": [\"bf16\"], \"tiers\": [\"scalar\"], \"layouts\": [\"row\"],"
         " \"scopes\": [\"op\"], \"ops\": [\"linear\"], \"acts\": [\"a16\"],"
         " \"contract\": {\"name\": \"example\", \"accumulator\": \"F32\", \"lanes\": 1,"
         "  \"rounding\": {\"default\": \"BF16\", \"partial\": \"F32\", \"router\": \"F32\","
         "                 \"logits\": \"F32\"}},"
         " \"kernels\": [{\"name\": \"dot_bf16\", \"op\": \"linear\", \"method\": \"bf16\","
         "  \"tier\": \"scalar\", \"layout\": \"row\", \"act\": \"a16\", \"lanes\": 1}]}";
}

static int fail(assay_error* error, int status, const char* message, const char* tensor) {
  snprintf(error->message, sizeof error->message, "%s: %s", tensor, message);
  snprintf(error->tensor, sizeof error->tensor, "%s", tensor);
  return status;
}

static int open_session(const assay_open* request, const assay_host* host, assay_session** out,
                        assay_error* error) {
  if (strcmp(request->method, "bf16") != 0 || strcmp(request->tier, "scalar") != 0) {
    return fail(error, ASSAY_UNSUPPORTED, "only method bf16 at tier scalar", request->method);
  }
  assay_session* session = calloc(1, sizeof *session);
  if (session == NULL) return fail(error, ASSAY_FAILED, "out of memory", "session");
  session->host = host;
  session->tp = request->tp;
  session->attn_tp = request->attn_tp;
  *out = session;
  return ASSAY_OK;
}

static part* find(const assay_session* session, const char* name, int32_t rank) {
  part* p = session->parts;
  while (p != NULL && (p->rank != rank || strcmp(p->name, name) != 0)) p = p->next;
  return p;
}

static part* add(assay_session* session, const char* name, int32_t rank, int64_t rows,
                 int64_t columns) {
  part* p = calloc(1, sizeof *p);
  uint16_t* data = calloc((size_t)(rows * columns) + 1, sizeof *data);
  if (p == NULL || data == NULL) return NULL; /* the process ends with the cell */
  *p = (part){.next = session->parts, .rank = rank, .rows = rows, .columns = columns, .data = data};
  snprintf(p->name, sizeof p->name, "%s", name);
  session->parts = p;
  return p;
}

/* Copies this rank's part of a weight [N, K]. `cut` is the plan's: "whole", "n[tp]" or "k[tp]"
 * (rows or columns in as many parts as there are ranks), "[attn_tp]" for ranks of the attention,
 * "/2" for two ranks that share a part, "pad 59" for so many rows of zeros at the end. */
static int take_part(assay_session* session, const assay_tensor* tensor, const char* component,
                     const char* cut, int32_t rank, assay_error* error) {
  const int attention = strstr(cut, "[attn_tp]") != NULL;
  const char* slash = strchr(cut, '/');
  const char* pad = strstr(cut, "pad ");
  const int64_t replicas = slash != NULL ? atoll(slash + 1) : 1;
  int64_t parts = (attention ? session->attn_tp : session->tp) / replicas;
  int64_t index = (attention ? rank % session->attn_tp : rank) / replicas;
  if (cut[0] == 'w') parts = 1, index = 0;
#ifdef MISTAKE_RANK
  index = 0;
#endif
  const int64_t n = tensor->shape[0], k = tensor->shape[1];
  const int by_columns = cut[0] == 'k';
  const int64_t extent = by_columns ? k : n + (pad != NULL ? atoll(pad + 4) : 0);
  if (extent % parts != 0) {
    snprintf(error->axis, sizeof error->axis, "%s", by_columns ? "k" : "n");
    strcpy(error->got_unit, "element");
    error->got = extent;
    return fail(error, ASSAY_REFUSED, "its extent is no multiple of the ranks", tensor->name);
  }
  part* p = add(session, component, rank, by_columns ? n : extent / parts,
                by_columns ? extent / parts : k);
  if (p == NULL) return fail(error, ASSAY_FAILED, "out of memory", tensor->name);
  const int64_t first_row = by_columns ? 0 : index * p->rows;
  const int64_t first_column = by_columns ? index * p->columns : 0;
  for (int64_t row = 0; row < p->rows && first_row + row < n; ++row) {
    memcpy(p->data + row * p->columns,
           (const uint16_t*)tensor->data + (first_row + row) * k + first_column,
           (size_t)p->columns * sizeof *p->data);
  }
  return ASSAY_OK;
}

/* Each line of the plan is "L0.mlp.down.weight k[tp] <- model.layers.0.mlp.down_proj.weight". What
 * is no bf16 matrix is passed over: ops that need it will be unsupported. */
static int load(assay_session* session, const assay_load* request, assay_error* error) {
  const char* line = request->plan;
  while (line != NULL && *line != '\0') {
    char component[256], cut[128], source[512];
    const int read = sscanf(line, "%255s %127[^<]<- %511s", component, cut, source);
    /* An empty part: so that an op with a bias is known, and not computed without it. */
    if (read == 3 && strstr(component, ".bias") != NULL) {
      add(session, component, request->rank, 0, 0);
    }
    for (uint32_t i = 0; read == 3 && i < request->tensor_count; ++i) {
      const assay_tensor* tensor = &request->tensors[i];
      if (strcmp(tensor->name, source) != 0) continue;
      if (tensor->dtype != ASSAY_BF16 || tensor->ndim != 2) continue;
      const int status = take_part(session, tensor, component, cut, request->rank, error);
      if (status != ASSAY_OK) return status;
    }
    line = strchr(line, '\n');
    if (line != NULL) ++line;
  }
  return ASSAY_OK;
}

static int export_shard(assay_session* session, int32_t rank, const char* component,
                        assay_shard* out, assay_error* error) {
  const part* p = find(session, component, rank);
  if (p == NULL || p->rows == 0)
    return fail(error, ASSAY_UNSUPPORTED, "not loaded here", component);
  out->layout = "row";
  out->dtype = ASSAY_BF16;
  out->total_rows = out->rows = p->rows;
  out->first_row = 0;
  out->columns = p->columns;
  out->data = p->data;
  out->bytes = (uint64_t)(p->rows * p->columns) * sizeof *p->data;
  return ASSAY_OK;
}

static float from_bf16(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static uint16_t to_bf16(float value) { /* to nearest, ties to even */
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  if (value != value) return (uint16_t)(word >> 16 | 0x40);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static float element(const assay_tensor* tensor, int64_t i) {
  if (tensor->dtype == ASSAY_F32) return ((const float*)tensor->data)[i];
  return from_bf16(((const uint16_t*)tensor->data)[i]);
}

static int is_matrix(const assay_tensor* tensor) {
  return tensor->ndim == 2 && (tensor->dtype == ASSAY_F32 || tensor->dtype == ASSAY_BF16);
}

/* y = x W^T. The op is named by its output; its weight has the same name, but for o_proj, whose
 * output on one rank is attn.partial. */
static int run_op(assay_session* session, const assay_op* request, assay_error* error) {
  char weight[256], bias[256];
  const char* partial = strstr(request->tap, "attn.partial");
  const int stem = partial != NULL ? (int)(partial - request->tap) : (int)strlen(request->tap);
  const char* suffix = partial != NULL ? "attn.out" : "";
  snprintf(weight, sizeof weight, "%.*s%s.weight", stem, request->tap, suffix);
  snprintf(bias, sizeof bias, "%.*s%s.bias", stem, request->tap, suffix);
  const part* w = find(session, weight, request->rank);
  if (w == NULL || find(session, bias, request->rank) != NULL || request->input_count != 1 ||
      request->output_count != 1 || !is_matrix(&request->inputs[0]) ||
      !is_matrix(&request->outputs[0])) {
    return fail(error, ASSAY_UNSUPPORTED, "not a linear op on a bf16 weight", request->tap);
  }
  const assay_tensor* x = &request->inputs[0];
  assay_tensor* y = &request->outputs[0];
  if (x->shape[1] != w->columns || y->shape[0] != x->shape[0] || y->shape[1] != w->rows) {
    return fail(error, ASSAY_REFUSED, "shapes of input, weight and output differ", request->tap);
  }
  int64_t terms = w->columns;
#ifdef MISTAKE_TAIL
  terms = terms > 8 ? terms - 8 : 0;
#endif
  for (int64_t t = 0; t < x->shape[0]; ++t) {
    for (int64_t n = 0; n < w->rows; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < terms; ++k) {
        sum += element(x, t * w->columns + k) * from_bf16(w->data[n * w->columns + k]);
      }
      if (y->dtype == ASSAY_F32) {
        ((float*)y->data)[t * w->rows + n] = sum;
      } else {
        ((uint16_t*)y->data)[t * w->rows + n] = to_bf16(sum);
      }
    }
  }
  const assay_executed executed = {.size = sizeof executed,
                                   .tap = request->tap,
                                   .rank = request->rank,
                                   .kernel = "dot_bf16",
                                   .tier = "scalar",
                                   .layout = "row",
                                   .act = "a16",
                                   .threads = 1};
  session->host->executed(session->host->context, &executed);
  return ASSAY_OK;
}

static void close_session(assay_session* session) {
  while (session->parts != NULL) {
    part* p = session->parts;
    session->parts = p->next;
    free(p->data);
    free(p);
  }
  free(session);
}

static const assay_engine engine = {
    .size = sizeof engine,
    .version = ASSAY_ABI_VERSION,
    .name = "example",
    .revision = "1",
    .describe = describe,
    .open = open_session,
    .load = load,
    .export_shard = export_shard,
    .run_op = run_op,
    .close = close_session,
};

const assay_engine* assay_engine_get(uint32_t version) {
  return version >= engine.version ? &engine : NULL;
}

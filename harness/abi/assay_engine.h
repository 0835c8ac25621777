/* assay_engine.h: the C ABI between Assay's harness and an inference engine under test.
 *
 * An engine is a shared library with one exported symbol, assay_engine_get(). Build one with
 *     gcc -shared -fPIC -I harness/abi mine.c -o libmine.so
 * and run it with
 *     ./assay run --engine ./libmine.so
 *
 * Everything is optional. A NULL function, or ASSAY_UNSUPPORTED from one, means "I cannot do
 * that": the harness does with less and reports with less. A library that only knows one linear op
 * is valid. What is set is called only in a child process of the harness; a crash costs one cell.
 *
 * Order of calls: describe; then per cell open, load (once for each rank), export_shard, run_op or
 * run or reduce, close. Calls come from one thread.
 *
 * Words. A rank is one part of a tensor-parallel group; all ranks of a cell live in one session.
 * A tap is a named intermediate tensor, `L1.moe.e5.down`: layer 1, expert 5, output of the down
 * projection. A component is a stored tensor of a parameter, `L1.moe.e5.down.weight`, `.scale`,
 * `.bias`. A linear op computes y = x W^T with W [N, K]. Tensors are row major, little endian.
 *
 * Every structure begins with its size in bytes, as the side that fills it was compiled. Members
 * are only ever added at the end: test `size` before reading one that is newer than yours.
 * Reserved values are zero.
 */
#ifndef ASSAY_ENGINE_H
#define ASSAY_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_ABI_VERSION 1u

/* What a call came to. Anything but ASSAY_OK fills assay_error. */
enum {
  ASSAY_OK = 0,
  ASSAY_UNSUPPORTED = 1, /* this engine cannot do that; not a finding */
  ASSAY_REFUSED = 2,     /* the configuration is illegal (a shard would cut a group, a tensor does
                            not fit its parameter ...); a finding if it is in fact legal */
  ASSAY_FAILED = 3       /* it tried and could not */
};

/* Types of stored values. */
enum {
  ASSAY_F64 = 0,
  ASSAY_F32 = 1,
  ASSAY_F16 = 2,
  ASSAY_BF16 = 3,
  ASSAY_F8_E4M3 = 4,
  ASSAY_F8_E5M2 = 5,
  ASSAY_F8_E8M0 = 6,
  ASSAY_I64 = 7,
  ASSAY_I32 = 8,
  ASSAY_I16 = 9,
  ASSAY_I8 = 10,
  ASSAY_U8 = 11,
  ASSAY_BOOL = 12,
  ASSAY_U16 = 13,
  ASSAY_U32 = 14,
  ASSAY_U64 = 15,
  /* GGUF blocks: one value is a block of 32, 64 or 256 elements with its scales; shapes count
   * blocks. */
  ASSAY_Q4_0 = 16,
  ASSAY_Q4_1 = 17,
  ASSAY_Q5_0 = 18,
  ASSAY_Q5_1 = 19,
  ASSAY_Q8_0 = 20,
  ASSAY_Q2_K = 21,
  ASSAY_Q3_K = 22,
  ASSAY_Q4_K = 23,
  ASSAY_Q5_K = 24,
  ASSAY_Q6_K = 25,
  ASSAY_MXFP4 = 26,
  ASSAY_NVFP4 = 27
};

typedef struct assay_tensor {
  size_t size;
  const char* name; /* a tap, a component, or the checkpoint's own name; see each use */
  int32_t rank;     /* whose copy or part; -1: the same for every rank */
  uint32_t dtype;   /* ASSAY_... */
  uint32_t ndim;    /* at most 4 */
  int64_t shape[4]; /* in stored values */
  void* data;       /* only written to where a use says so */
  uint64_t bytes;
} assay_tensor;

/* Why a call did not succeed. message: one line. The other members are for shape and unit errors,
 * empty or 0 where they have no meaning: `tensor` (the name in the checkpoint or the component),
 * `axis` ("k", "n", "heads" ...), and what stood where: extent `got` in unit `got_unit` against
 * extent `expected` in unit `expected_unit` ("element", "word", "byte", "group"). */
typedef struct assay_error {
  size_t size;
  char message[1024];
  char tensor[256];
  char axis[32];
  char got_unit[64];
  char expected_unit[64];
  int64_t got;
  int64_t expected;
} assay_error;

/* What really ran for one op on one rank; told by the engine's own dispatcher, not repeated from
 * the request. */
typedef struct assay_executed {
  size_t size;
  const char* tap;
  int32_t rank;
  const char* kernel; /* name or symbol of the kernel, as in describe()'s list */
  const char* tier;   /* "scalar", "avx2", ... */
  const char* layout; /* tag of the weight's layout, "" for ops without a weight */
  const char* act;    /* type in which activations enter the product: "a16", "a8g32" ... */
  int32_t threads;
  const char* how; /* "hardware" (also where absent), or how the tier was emulated */
} assay_executed;

/* What the harness offers to an engine. All functions may be called at any time between open and
 * close, from the calling thread. */
typedef struct assay_host {
  size_t size;
  void* context;
  /* Memory that ends at a guard page (up to the alignment, at most 4096) and is filled with poison.
   * NULL when there is none. Using it is voluntary; buffers of an engine that uses it are watched.
   */
  void* (*alloc)(void* context, uint64_t bytes, uint64_t alignment);
  void (*free)(void* context, void* pointer);
  /* An intermediate tensor. `value->name` is the tap (taps.md), `value->rank` whose copy.
   * Copied before the call returns. A rank's tap holds that rank's part: its columns for a
   * column-parallel op, its own partial sum for a row-parallel one. Rows of an expert's taps are
   * the tokens routed to it, ascending. Types: F32, BF16, F16, F64; ids I32. An engine that
   * quantises activations to 8 bits shows them beside each product: `TAP.x_q` I8 [rows, k of this
   * rank] and `TAP.x_scale` F32 [rows, groups]. */
  void (*tap)(void* context, const assay_tensor* value);
  void (*executed)(void* context, const assay_executed* record);
} assay_host;

typedef struct assay_session assay_session; /* the engine's own */

typedef struct assay_open {
  size_t size;
  const char* config_json; /* the checkpoint's config.json, whole */
  int32_t tp;              /* ranks of the session */
  int32_t attn_tp; /* ranks that share one attention; rank r is attention rank r % attn_tp */
  int32_t pools;   /* sub-pools inside each rank; 1 */
  int32_t threads;
  const char* tier;    /* demanded; an engine without it answers ASSAY_UNSUPPORTED */
  const char* kernel;  /* class or registry name, "" for the engine's own choice */
  const char* method;  /* of the quantised weights, "bf16" if none */
  const char* layout;  /* demanded tag, "" for the kernel's own */
  const char* act;     /* demanded activation type, "" for the kernel's own */
  const char* reduce;  /* "sequential:fp32", "ring:bf16" ... */
  const char* routing; /* "model" or "forced" */
  /* Further key=value pairs, space separated: `limit=7` (clamp of the activation's inputs: gate at
   * most 7, up within ±7), `emulate=never|auto|always` (may a tier that the host lacks be emulated,
   * or must it be); how parameters are divided: `split=ceil|list:5,3,2` (the intermediate axis),
   * `dp=4`, `ep=2`, `experts=0,1,-1,0` (logical expert of each physical slot), `lm_head=dp`,
   * `placement=hybrid:2`; `beta=4`, `linear_beta=25` (SiTU). A key that is not known and not
   * understood: ASSAY_UNSUPPORTED. */
  const char* options;
} assay_open;

/* One rank's load. `tensors` are whole tensors under the checkpoint's names: slicing is the
 * engine's job. Their memory is the harness's; it is overwritten after the call returns.
 * `plan` says which part belongs to whom, one component a line: `L1.moe.e5.down.weight
 * k[tp] g32 u4x8 <- model.layers.1...weight_packed`; an engine that has a loader of its own may
 * ignore it. A call may name only some experts or one layer: what is not named will not be used.
 * After every rank was loaded the harness may load all of them again with other values (the problem
 * key reload): the second load replaces everything that it names. */
typedef struct assay_load {
  size_t size;
  int32_t rank;
  int64_t layer; /* -1: all that is in tensors */
  const char* plan;
  uint32_t tensor_count;
  const assay_tensor* tensors;
} assay_load;

/* A loaded component as it lies in the engine's memory. A rank that holds nothing of it answers
 * ASSAY_OK with rows = 0. If the engine joined several components
 * (gate and up; q, k and v) into one matrix, `data` is the whole of that matrix, `total_rows` its
 * rows, and this component's rows begin at `first_row`. */
typedef struct assay_shard {
  size_t size;
  const char* layout; /* tag: "row" is row major as in the checkpoint */
  uint32_t dtype;     /* of a stored value in layout "row" */
  int64_t total_rows;
  int64_t first_row;
  int64_t rows;    /* this component's rows in this rank's shard, padding included */
  int64_t columns; /* stored values a row in layout "row" */
  const void* data;
  uint64_t bytes;
  /* What the engine chose for the parameter, told by its own selector: the storage method under
   * which it read it ("ct-int4-g32", "gguf-q4_k", "bf16" ...) and the kernel that will take it;
   * NULL or "": not told. */
  const char* method;
  const char* kernel;
} assay_shard;

/* One op on one rank's shard: outputs[] have name, dtype, shape and memory filled in by the
 * harness (types as the contract in describe() says), the engine fills the memory completely. */
typedef struct assay_op {
  size_t size;
  int32_t rank;
  const char* tap; /* output's tap: it names the op */
  uint32_t input_count;
  const assay_tensor* inputs;
  uint32_t output_count;
  assay_tensor* outputs;
} assay_op;

/* A block, a layer or the model, over all ranks of the session, with taps through the host.
 * scope: "attn" (input_norm -> attn.out), "route" (post_norm -> router.*), "mlp" (post_norm ->
 * mlp.out, dense), "moe" (post_norm -> mlp.out, router and shared experts included), "experts"
 * (post_norm and forced ids and weights -> moe.out), "layer" (residual in -> residual_mlp),
 * "model" (tokens -> logits).
 * Keys and values of earlier calls since reset stay: first_position > 0 is a decode or a chunk. */
typedef struct assay_run {
  size_t size;
  const char* scope;
  int64_t layer; /* -1 for "model" */
  int32_t token_count;
  const int32_t* tokens;
  int64_t first_position;
  uint32_t input_count;
  const assay_tensor* inputs; /* by tap name; forced routing: L{n}.router.ids and .weights */
  assay_tensor* output;       /* the scope's last tap, memory by the harness; NULL: taps only */
} assay_run;

/* The engine's collectives. all_reduce (also where `kind` is absent): partial sums inputs[rank] ->
 * one output. reduce_scatter: outputs[rank] is that rank's chunk of the flat sum, chunks of
 * ceil(count/ranks) values, the last ones shorter or empty. gather: columns inputs[rank] of the
 * vocabulary -> one output, cut at the real vocabulary. */
typedef struct assay_reduce {
  size_t size;
  const char* tap;
  uint32_t rank_count;
  const assay_tensor* inputs;
  assay_tensor* output;
  const char* kind;
  uint32_t output_count; /* reduce_scatter */
  assay_tensor* outputs;
} assay_reduce;

typedef struct assay_engine {
  size_t size;
  uint32_t version; /* ASSAY_ABI_VERSION it was compiled with */
  const char* name;
  const char* revision;
  /* JSON, static storage:
   * {"methods": ["bf16"], "tiers": ["scalar"], "layouts": ["row"], "scopes": ["op", "moe"],
   *  "families": ["llama"], "ops": ["linear"], "acts": ["a16"], "tp": [1, 2], "contract": {...},
   *  "reduces": ["sequential:fp32"], "emulates": ["avx512"], "reloads": true,
   *  "kernels": [{"name", "op", "method", "tier", "layout", "act", "lanes", "extra",
   *               "arithmetic_class"}]}
   * reduces: orders and wires of its all-reduce, each exactly as contract.md defines it: then sums
   * over ranks are compared bit for bit. emulates: tiers that it can run where the host lacks them.
   * reloads: loading every rank again replaces what was loaded.
   * tp: the degrees that are legal. contract: harness/abi/contract.md. What is left out was not
   * said, and nothing is concluded from it. */
  const char* (*describe)(void);
  int (*open)(const assay_open* request, const assay_host* host, assay_session** session,
              assay_error* error);
  int (*load)(assay_session* session, const assay_load* request, assay_error* error);
  /* What `out` points to stays valid until the next load or close. */
  int (*export_shard)(assay_session* session, int32_t rank, const char* component, assay_shard* out,
                      assay_error* error);
  int (*run_op)(assay_session* session, const assay_op* request, assay_error* error);
  int (*reset)(assay_session* session, assay_error* error); /* forget keys and values */
  int (*run)(assay_session* session, const assay_run* request, assay_error* error);
  int (*reduce)(assay_session* session, const assay_reduce* request, assay_error* error);
  void (*close)(assay_session* session);
} assay_engine;

/* The one exported symbol. NULL: this version is not spoken. */
const assay_engine* assay_engine_get(uint32_t version);
typedef const assay_engine* (*assay_engine_get_fn)(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif

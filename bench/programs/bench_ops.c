/* Times every op on its specs' benchmark shapes beside a roof measured in the same run.
 *
 *   bench_ops [--op NAME] [--dtype f32] [--shape S] [--entry avx2] [--threads N] [--pairs N]
 *             [--csv FILE] [--again] [--run ID] [--list] [--commit]
 *
 * The op and its roof are timed in turn, `pairs` times each; figures are medians, and the share of
 * the roof is the median of the pairs' shares, so that a machine that slows down meanwhile does not
 * count. With --csv the figures are recorded, on a quiet machine only. Exit 0: all was timed (and
 * recorded); 1: something was not; 2: wrong usage.
 */
#include "bench_timing.h"
#include "host_load.h"
#include "record.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTries = 3, kPatience = 20 };

typedef struct options {
  const char *op, *dtype, *shape, *entry, *csv, *run;
  int threads, pairs;
  bool list, again;
} options;

/* What all cases of a run share. */
typedef struct bench_session {
  options o;
  tg_context *ctx;
  array_stack arrays;
  record_run run;
  int count;   /* cases wanted */
  bool failed; /* one was not timed, or not recorded */
  bool busy;   /* the machine was; nothing more is measured */
} bench_session;

/* ---- reporting ---- */

static void print_heading(void)
{
  printf("%-14s %-4s %-5s %-34s %-8s %10s %8s %9s %-9s %6s %s\n", "op", "dir", "dtype", "shape",
         "entry", "ms", "GB/s", "GFLOP/s", "roof", "share", "of");
}

static void print_row(const bench_case *c, const bench_timing *t)
{
  const tg_op_info *info = tg_op_find(c->spec->name);
  const double bytes = c->cost.read_bytes + c->cost.written_bytes;
  printf("%-14s %-4s %-5s %-34s %-8s %10.3f %8.1f %9.1f %-9s %5.1f%% %s\n", info->op, info->dir,
         tg_dtype_name(c->dtype), c->shape, tg_context_entry(c->ctx), t->ours.ms,
         bytes / t->ours.ms * 1e-6, c->cost.flops / t->ours.ms * 1e-6, t->roof_name, 100 * t->share,
         t->roof_detail);
  fflush(stdout);
}

typedef struct texts {
  char config[32], ours[32], roof[32];
} texts;

/* Ours and its roof: what a run of this case must hold. */
static void make_rows(const bench_case *c, const char *roof_name_, texts *x, record_row *rows)
{
  const tg_op_info *info = tg_op_find(c->spec->name);
  snprintf(x->config, sizeof x->config, "threads=%d", (int)tg_context_num_threads(c->ctx));
  snprintf(x->ours, sizeof x->ours, "tegula:%s", tg_context_entry(c->ctx));
  snprintf(x->roof, sizeof x->roof, "roof:%s", roof_name_);
  rows[0] = (record_row){.suite = "ops",
                         .op = info->op,
                         .dir = info->dir,
                         .dtype = tg_dtype_name(c->dtype),
                         .shape = c->shape,
                         .config = x->config,
                         .impl = x->ours,
                         .version = tg_version(),
                         .bytes = c->cost.read_bytes + c->cost.written_bytes,
                         .flops = c->cost.flops,
                         .roof = roof_name_};
  rows[1] = rows[0];
  rows[1].impl = x->roof;
  rows[1].roof_share = 1;
}

static bool record(const bench_case *c, const bench_timing *t, const options *o,
                   const record_run *run)
{
  texts x = {.config = ""};
  record_row rows[2];
  make_rows(c, t->roof_name, &x, rows);
  const bench_result *results[2] = {&t->ours, &t->roof};
  for (int i = 0; i < 2; i++) {
    rows[i].ms = results[i]->ms;
    rows[i].ms_min = results[i]->ms_min;
    rows[i].ms_max = results[i]->ms_max;
    rows[i].note = t->note;
  }
  rows[0].roof_share = t->share;
  rows[1].bytes = t->roof_bytes;
  rows[1].flops = t->roof_flops;
  if (!record_append(o->csv, run, rows, 2)) {
    fprintf(stderr, "%s: cannot be written\n", o->csv);
    return false;
  }
  return true;
}

/* The roof's name is not known before the case is open; any of them will do. */
static bool is_recorded(const char *csv, const bench_case *c)
{
  texts x = {.config = ""};
  record_row rows[2];
  const char *const names[] = {"copy", "read", "fma_f32", "dot_bf16"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    make_rows(c, names[i], &x, rows);
    if (record_has(csv, rows, 2)) {
      return true;
    }
  }
  return false;
}

/* ---- a case ---- */

/* Recorded figures need a quiet machine throughout: measured again, a few times, if it was not. */
static bool run_recorded(bench_case *c, bench_session *session, bench_timing *t)
{
  double load = 0;
  for (int i = 0; i < kTries; i++) {
    const host_load before = host_load_now();
    if (!bench_time(c, session->o.pairs, t)) {
      return false;
    }
    load = host_load_since(&before);
    if (load <= HOST_LOAD_LIMIT) {
      return record(c, t, &session->o, &session->run);
    }
    load = host_load_wait(kPatience);
    if (load > HOST_LOAD_LIMIT) {
      break;
    }
  }
  fprintf(stderr, "%s %s: not recorded: other processes use %.2f CPUs, more than %.1f\n",
          c->spec->name, c->shape, load, HOST_LOAD_LIMIT);
  session->busy = true;
  return false;
}

static bool run_case(const spec *s, const char *shape, tg_dtype dtype, bench_session *session)
{
  const char *csv = session->o.csv;
  bench_case c = {.spec = s, .shape = shape, .dtype = dtype, .ctx = session->ctx};
  bench_timing t;
  tg_error error;
  if (csv && !session->o.again && is_recorded(csv, &c)) {
    printf("%-19s recorded already: %s %s\n", s->name, tg_dtype_name(dtype), shape);
    return true;
  }
  if (bench_case_open(&c, s, shape, dtype, session->ctx, &session->arrays, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    return false;
  }
  const bool done = csv ? run_recorded(&c, session, &t) : bench_time(&c, session->o.pairs, &t);
  if (done) {
    print_row(&c, &t);
  }
  bench_case_close(&c);
  return done;
}

/* "rms_norm_fwd 65536x768 f32 <bytes> <flops>": what scripts that time peers want to know. */
static bool list_case(const spec *s, const char *shape, tg_dtype dtype)
{
  tgi_shaped shaped;
  tg_error error;
  if (tgi_shape_fill(s->name, shape, dtype, &shaped, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    return false;
  }
  printf("%s %s %s %.0f %.0f\n", s->name, shape, tg_dtype_name(dtype),
         shaped.cost.read_bytes + shaped.cost.written_bytes, shaped.cost.flops);
  return true;
}

static void run_spec(const spec *s, bench_session *session)
{
  const options *o = &session->o;
  const char *const asked[] = {o->shape, NULL};
  for (const char *const *shape = o->shape ? asked : s->bench; shape && *shape; shape++) {
    for (int d = 0; d < SPEC_DTYPES && !session->busy; d++) {
      if (!spec_takes(s, spec_dtypes[d], o->dtype)) {
        continue;
      }
      session->count++;
      if (o->list) {
        session->failed = !list_case(s, *shape, spec_dtypes[d]) || session->failed;
      } else if (!run_case(s, *shape, spec_dtypes[d], session)) {
        session->failed = true;
      }
    }
  }
}

/* ---- the command ---- */

enum { kAgain = 256, kRunId, kCommit, kList };

static int whole_number(struct argp_state *state, const char *flag, const char *text, int most)
{
  char *end;
  const long n = strtol(text, &end, 10);
  if (*end || end == text || n < 1 || n > most) {
    argp_error(state, "--%s: expected a number from 1 to %d, got \"%s\"", flag, most, text);
  }
  return (int)n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
  options *o = state->input;
  switch (key) {
  case 'o':
    o->op = arg;
    return 0;
  case 'd':
    o->dtype = arg;
    return 0;
  case 's':
    o->shape = arg;
    return 0;
  case 'e':
    o->entry = arg;
    return 0;
  case 't':
    o->threads = whole_number(state, "threads", arg, 4096);
    return 0;
  case 'p':
    o->pairs = whole_number(state, "pairs", arg, BENCH_MAX_PAIRS);
    return 0;
  case 'c':
    o->csv = arg;
    return 0;
  case kAgain:
    o->again = true;
    return 0;
  case kRunId:
    o->run = arg;
    return 0;
  case kList:
    o->list = true;
    return 0;
  case kCommit:
    puts(record_commit());
    exit(0);
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp_option kOptions[] = {
    {"op", 'o', "NAME", 0, "Only this op (rms_norm) or row (rms_norm_bwd)", 0},
    {"dtype", 'd', "NAME", 0, "Only this dtype", 0},
    {"shape", 's', "SHAPE", 0, "This shape instead of the op's own; see tegula explain", 0},
    {"entry", 'e', "NAME", 0, "Start the chain at this entry: avx512, avx2, generic", 0},
    {"threads", 't', "N", 0, "Threads (all CPUs)", 0},
    {"pairs", 'p', "N", 0, "Times that op and roof are timed in turn (7)", 0},
    {"csv", 'c', "FILE", 0, "Record the figures; skips what FILE holds for this commit", 0},
    {"again", kAgain, NULL, 0, "Measure recorded cases again, too", 0},
    {"run", kRunId, "ID", 0, "Name of the run in the record", 0},
    {"list", kList, NULL, 0, "List the cases with their bytes and flops", 0},
    {"commit", kCommit, NULL, 0, "Print the commit that was built", 0},
    {0},
};

/* Says what is measured where, and whether the machine is quiet enough for it. */
static void announce(bench_session *s)
{
  const double load = host_load_wait(s->o.csv ? kPatience : 0);
  printf("# %s; %d threads; commit %s; other load %.2f\n", s->run.device,
         (int)tg_context_num_threads(s->ctx), s->run.commit, load);
  if (s->o.csv && strstr(s->run.commit, "dirty")) {
    fprintf(stderr, "warning: files differ from the commit: commit, build and measure again\n");
  }
  if (load > HOST_LOAD_LIMIT && s->o.csv) {
    fprintf(stderr,
            "not recorded: other processes use %.2f CPUs, more than %.1f; stop them, or leave "
            "--csv away\n",
            load, HOST_LOAD_LIMIT);
    s->busy = s->failed = true;
  } else if (load > HOST_LOAD_LIMIT) {
    fprintf(stderr, "warning: other processes use %.2f CPUs: these figures mean little\n", load);
  }
  print_heading();
}

int main(int argc, char **argv)
{
  static const struct argp argp = {kOptions, parse, NULL, "Times every op beside a roof.",
                                   NULL,     NULL,  NULL};
  bench_session s = {.o = {.pairs = 7}};
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &s.o);
  tg_error error;
  const tg_context_options wish = {
      .backend = TG_BACKEND_CPU, .num_threads = s.o.threads, .entry = s.o.entry};
  if (tg_context_create(&wish, &s.ctx, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 2;
  }
  if (!array_stack_open(&s.arrays)) {
    fprintf(stderr, "no memory\n");
    return 1;
  }
  s.run = record_begin(s.o.run);
  if (!s.o.list) {
    announce(&s);
  }
  for (size_t i = 0; i < spec_count && !s.busy; i++) {
    if (spec_is_of(spec_list[i], s.o.op)) {
      run_spec(spec_list[i], &s);
    }
  }
  array_stack_close(&s.arrays);
  tg_context_destroy(s.ctx);
  if (s.count == 0 && !s.busy) {
    fprintf(stderr, "no case: expected an op with benchmark shapes and one of its dtypes\n");
    return 2;
  }
  return s.failed ? 1 : 0;
}

/* start:stop:step of texts, lists, tuples and ranges. */
#include "template_render.h"

/** A part of a slice; false: it is absent or none. */
static bool slice_part(tgi_run *run, const tgi_node *node, int64_t *part)
{
  const tgi_value v = node ? tgi_evaluate(run, node) : tgi_none();
  if (v.kind == TGI_NONE) {
    return false;
  }
  if (!tgi_is_integer(v, part)) {
    run->job.place = node->place;
    tgi_fail_on(&run->job, v, "an int or none in a slice");
  }
  return true;
}

typedef struct slice_bounds {
  int64_t first, stop, step, count;
} slice_bounds;

/** PySlice_AdjustIndices. */
static slice_bounds adjust_slice(tgi_run *run, const tgi_node *slice, int64_t length)
{
  int64_t edge[2], step = 1;
  bool given[2];
  given[0] = slice_part(run, slice->first, &edge[0]);
  given[1] = slice_part(run, slice->second, &edge[1]);
  slice_part(run, slice->third, &step);
  if (step == 0) {
    run->job.place = slice->place;
    tgi_job_fail(&run->job, TG_BAD_ARGUMENT, "a step other than 0 in a slice, got 0");
  }
  const bool back = step < 0;
  for (int i = 0; i < 2; i++) {
    const int64_t lowest = back ? -1 : 0, highest = back ? length - 1 : length;
    if (!given[i]) {
      edge[i] = (i == 0) == back ? highest : lowest;
      continue;
    }
    edge[i] += edge[i] < 0 ? length : 0;
    edge[i] = edge[i] < lowest ? lowest : edge[i] > highest ? highest : edge[i];
  }
  const int64_t span = back ? edge[0] - edge[1] : edge[1] - edge[0];
  const int64_t size = step == INT64_MIN ? INT64_MAX : back ? -step : step;
  return (slice_bounds){edge[0], edge[1], step, span > 0 ? (span - 1) / size + 1 : 0};
}

static tgi_value slice_string(tgi_run *run, tgi_string *s, slice_bounds bounds)
{
  tgi_job *job = &run->job;
  if (bounds.step == 1) {
    const size_t from = tgi_string_offset(job, s, (size_t)bounds.first);
    const size_t to = tgi_string_offset(job, s, (size_t)(bounds.first + bounds.count));
    return tgi_text(tgi_string_slice(job, s, from, to));
  }
  tgi_writer writer = tgi_writer_begin(job);
  for (int64_t i = 0; i < bounds.count; i++) {
    tgi_value item;
    if (tgi_item_at(job, tgi_text(s), bounds.first + i * bounds.step, &item)) {
      tgi_write_string(&writer, item.as.string);
    }
  }
  tgi_string *sliced = tgi_writer_end(&writer);
  sliced->safe = s->safe;
  return tgi_text(sliced);
}

static tgi_value slice_range(tgi_run *run, const tgi_range *whole, slice_bounds bounds)
{
  tgi_range *part = tgi_job_allocate(&run->job, sizeof *part);
  int64_t first, stop;
  if (__builtin_mul_overflow(whole->step, bounds.step, &part->step) ||
      __builtin_mul_overflow(whole->step, bounds.first, &first) ||
      __builtin_mul_overflow(whole->step, bounds.stop, &stop) ||
      __builtin_add_overflow(whole->start, first, &part->start) ||
      __builtin_add_overflow(whole->start, stop, &part->stop)) {
    tgi_job_fail(&run->job, TG_UNSUPPORTED, "a range of numbers of 64 bits, got larger ones");
  }
  part->count = bounds.count;
  return (tgi_value){.kind = TGI_RANGE, .as.range = part};
}

tgi_value tgi_evaluate_slice(tgi_run *run, const tgi_node *node, tgi_value v)
{
  tgi_job *job = &run->job;
  const bool list = v.kind == TGI_LIST || v.kind == TGI_TUPLE;
  if (!list && v.kind != TGI_STRING && v.kind != TGI_RANGE) {
    tgi_fail_on(job, v, "a str, list or tuple to slice");
  }
  const slice_bounds bounds = adjust_slice(run, node->second, tgi_length(job, v));
  if (v.kind == TGI_STRING) {
    return slice_string(run, v.as.string, bounds);
  }
  if (v.kind == TGI_RANGE) {
    return slice_range(run, v.as.range, bounds);
  }
  tgi_list *items = tgi_list_new(job);
  for (int64_t i = 0; i < bounds.count; i++) {
    tgi_list_add(job, items, v.as.list->items[bounds.first + i * bounds.step]);
  }
  return tgi_from_list((tgi_kind)v.kind, items);
}

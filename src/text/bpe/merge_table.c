#include "merge_table.h"
#include <stdlib.h>
#include <string.h>

enum { kFirstSlots = 1024 };

static tgi_merge *slot_of(const tgi_merge_table *t, uint64_t pair)
{
  size_t i = tgi_pair_slot(t, pair);
  while (t->slots[i].pair != pair && t->slots[i].pair != UINT64_MAX) {
    i = (i + 1) & (t->num_slots - 1);
  }
  return &t->slots[i];
}

bool tgi_merge_table_reserve(tgi_merge_table *t, size_t count)
{
  if (2 * count <= t->num_slots) {
    return true;
  }
  tgi_merge_table wider = {.num_slots = kFirstSlots, .count = t->count};
  while (wider.num_slots < 2 * count) {
    wider.num_slots *= 2;
  }
  wider.slots = malloc(wider.num_slots * sizeof *wider.slots);
  if (!wider.slots) {
    return false;
  }
  memset(wider.slots, 0xff, wider.num_slots * sizeof *wider.slots);
  for (size_t i = 0; i < t->num_slots; i++) {
    if (t->slots[i].pair != UINT64_MAX) {
      *slot_of(&wider, t->slots[i].pair) = t->slots[i];
    }
  }
  free(t->slots);
  *t = wider;
  return true;
}

bool tgi_merge_table_add(tgi_merge_table *t, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
  if (!tgi_merge_table_reserve(t, t->count + 1)) {
    return false;
  }
  tgi_merge *slot = slot_of(t, tgi_pair(left, right));
  t->count += slot->pair == UINT64_MAX;
  *slot = (tgi_merge){tgi_pair(left, right), rank, id};
  return true;
}

void tgi_merge_table_free(tgi_merge_table *t)
{
  free(t->slots);
  *t = (tgi_merge_table){0};
}

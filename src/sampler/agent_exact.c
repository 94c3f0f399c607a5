#include "sampler/agent_exact.h"

#include "base/array.h"

#include <stdlib.h>

enum { MAX_SITES = 1 << 19, MAX_CELLS = 1 << 21, MAX_SLOTS = 1024 };

void agent_exact_release(struct agent_exact *exact) {
    map_release(&exact->numbers);
    map_release(&exact->index);
    free(exact->cells);
    free(exact->sites);
}

static enum status find_site(struct agent_exact *exact, uint32_t number, uint32_t *index) {
    uint64_t known = 0;
    if (map_get(&exact->numbers, number, &known)) {
        *index = (uint32_t)known;
        return STATUS_OK;
    }
    if (number == 0 || exact->site_count == MAX_SITES)
        return STATUS_DAMAGED;
    TRY(array_reserve((void **)&exact->sites, &exact->site_capacity, exact->site_count + 1, sizeof exact->sites[0]));
    TRY(map_set(&exact->numbers, number, exact->site_count));
    *index = (uint32_t)exact->site_count++;
    exact->sites[*index] = (struct agent_exact_site){0};
    return STATUS_OK;
}

enum status agent_exact_define(struct agent_exact *exact, uint32_t number, uint32_t path) {
    uint32_t index = 0;
    TRY(find_site(exact, number, &index));
    /* Numbers are not used again. */
    if (exact->sites[index].is_known)
        return STATUS_DAMAGED;
    exact->sites[index].path = path;
    exact->sites[index].is_known = true;
    return STATUS_OK;
}

bool agent_exact_path(const struct agent_exact *exact, uint32_t number, uint32_t *path) {
    uint64_t known = 0;
    if (!map_get(&exact->numbers, number, &known) || !exact->sites[known].is_known)
        return false;
    *path = exact->sites[known].path;
    return true;
}

static enum status find_cell(struct agent_exact *exact, uint32_t slot, uint32_t site, struct agent_exact_cell **cell) {
    uint64_t key = (uint64_t)slot << 32 | site, known = 0;
    if (map_get(&exact->index, key, &known)) {
        *cell = &exact->cells[known];
        return STATUS_OK;
    }
    if (exact->cell_count == MAX_CELLS)
        return STATUS_DAMAGED;
    TRY(array_reserve((void **)&exact->cells, &exact->cell_capacity, exact->cell_count + 1, sizeof exact->cells[0]));
    TRY(map_set(&exact->index, key, exact->cell_count));
    *cell = &exact->cells[exact->cell_count++];
    **cell = (struct agent_exact_cell){.site = site};
    return STATUS_OK;
}

/* No address space holds more. */
static bool is_plausible(int64_t amount) {
    return amount > -(INT64_C(1) << 57) && amount < INT64_C(1) << 57;
}

static int64_t add(int64_t sum, int64_t change) {
    int64_t result = sum + change;
    return is_plausible(result) ? result : sum;
}

enum status agent_exact_count(struct agent_exact *exact, const struct wire_counts *counts) {
    struct agent_exact_cell *cell = NULL;
    if (counts->slot >= MAX_SLOTS || !is_plausible(counts->live_bytes) || !is_plausible(counts->live_count) ||
        !is_plausible(counts->before_bytes) || counts->temporary_bytes >= UINT64_C(1) << 57)
        return STATUS_DAMAGED;
    uint32_t index = 0;
    TRY(find_site(exact, counts->site, &index));
    TRY(find_cell(exact, counts->slot, index, &cell));
    if (counts->peak_id != cell->peak_id) {
        cell->peak_id = counts->peak_id;
        cell->saved_bytes = add(cell->live_bytes, counts->before_bytes);
    }
    cell->live_bytes = add(cell->live_bytes, counts->live_bytes);
    struct agent_exact_site *site = &exact->sites[index];
    site->live_bytes = add(site->live_bytes, counts->live_bytes);
    site->live_count = add(site->live_count, counts->live_count);
    site->temporary_bytes = (uint64_t)add((int64_t)site->temporary_bytes, (int64_t)counts->temporary_bytes);
    return STATUS_OK;
}

void agent_exact_sum_up(struct agent_exact *exact, uint64_t peak_id) {
    for (size_t i = 0; i < exact->site_count; i++)
        exact->sites[i].peak_bytes = 0;
    for (size_t i = 0; i < exact->cell_count; i++) {
        const struct agent_exact_cell *cell = &exact->cells[i];
        struct agent_exact_site *site = &exact->sites[cell->site];
        site->peak_bytes = add(site->peak_bytes, cell->peak_id == peak_id ? cell->saved_bytes : cell->live_bytes);
    }
}

/* What was given back may be read before what was given out. */
static uint64_t at_least_0(int64_t amount) {
    return amount > 0 ? (uint64_t)amount : 0;
}

struct sample_held agent_exact_held(const struct agent_exact_site *site) {
    return (struct sample_held){
        .live_bytes = at_least_0(site->live_bytes),
        .live_count = at_least_0(site->live_count),
        .peak_bytes = at_least_0(site->peak_bytes),
        .temporary_bytes = site->temporary_bytes,
    };
}

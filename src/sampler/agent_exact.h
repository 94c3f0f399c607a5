/* Memory of a process in which every allocation is counted: by site and slot, as the agent adds it up (struct
 * wire_counts), what is live and what was when the process held most. Private to agent_*.c. */
#ifndef STROBE_SAMPLER_AGENT_EXACT_H
#define STROBE_SAMPLER_AGENT_EXACT_H

#include "base/map.h"
#include "base/status.h"
#include "sampler/sample.h"
#include "wire/records.h"

/* What the threads of one slot have of a site. At the maximum with the number peak_id it was `saved`; at each later one
 * what it is. */
struct agent_exact_cell {
    uint32_t site; /* index */
    uint64_t peak_id;
    int64_t live_bytes, saved_bytes;
};

struct agent_exact_site {
    uint32_t path;
    bool is_known; /* its path was told; what is counted before that waits */
    int64_t live_bytes, live_count;
    int64_t peak_bytes; /* while it is summed up */
    uint64_t temporary_bytes;
    struct sample_held told;
};

/* Zero-initialised is empty. */
struct agent_exact {
    struct map index; /* slot << 32 | index of the site -> cell */
    struct agent_exact_cell *cells;
    size_t cell_count, cell_capacity;
    struct map numbers; /* of a site -> index in sites */
    struct agent_exact_site *sites;
    size_t site_count, site_capacity;
};

void agent_exact_release(struct agent_exact *exact);
/* A site is a call path. STATUS_DAMAGED when its number is none. */
enum status agent_exact_define(struct agent_exact *exact, uint32_t site, uint32_t path) MUST_USE;
/* The path of a site; false when it is not known. */
bool agent_exact_path(const struct agent_exact *exact, uint32_t site, uint32_t *path);
/* What is live of a site has changed. */
enum status agent_exact_count(struct agent_exact *exact, const struct wire_counts *counts) MUST_USE;
/* Sums up what each site held at the maximum `peak_id`, and what it holds. */
void agent_exact_sum_up(struct agent_exact *exact, uint64_t peak_id);
/* After that. */
struct sample_held agent_exact_held(const struct agent_exact_site *site);

#endif

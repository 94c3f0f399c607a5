/* One process in which the agent works. Private to agent_*.c. */
#ifndef STROBE_SAMPLER_AGENT_PROCESS_H
#define STROBE_SAMPLER_AGENT_PROCESS_H

#include "base/memory_pages.h"
#include "sampler/agent_folder.h"
#include "sampler/agent_region.h"
#include "sampler/agent_thread.h"

struct agent_process {
    char name[AGENT_NAME_BYTES]; /* of the region's file */
    uint32_t incarnation;        /* how many programs have had this process id before */
    struct sampled_process sampled;
    struct agent_region *region;
    struct memory_pages pages;
    struct runtime runtime; /* valid with `process` */
    struct agent_codes codes;
    struct cpu_split *split; /* NULL: not known */
    struct agent_memory allocated;
    struct sample_counters counters;
    struct agent_thread *threads[WIRE_SLOTS]; /* NULL: none has the slot */
    uint32_t slot_limit;                      /* no slot from here on was in use when last looked at all */
    uint64_t slots_seen_ns;                   /* when that was */
    uint64_t no_slot_seen, no_event_seen;
    uint32_t thread_count;
    uint64_t unseen_ns, stride_ns; /* as agent_reading has them */
    struct sample_looks looks;
    unsigned exec_count; /* of `process`, when it was opened */
    bool hidden;         /* it is there, but may not be looked at */
    bool told;           /* the sink knows of it */
    bool settled;        /* it is known to be what it was forked as */
};

/* What a session lends its processes. */
struct agent_origin {
    uint32_t *last_serial; /* of code objects */
    uint64_t from_ns;      /* nothing of it is older */
    struct code_files *code_files;
};

/* Takes over the region. */
enum status agent_process_new(const char *name, struct agent_region *region, const struct agent_origin *origin,
                              struct agent_process **process) MUST_USE;
/* Tells the sink that its threads and the process have ended, if it knows of it, and frees it. */
enum status agent_process_free(struct agent_process *process, struct sample_sink *sink) MUST_USE;

/* Takes what stands in its rings. The sink is told of the process first; of a forked one only when there is something
 * in them, for most forks exec at once. `is_last`: nothing more will come; all slots are looked at, not only those that
 * are likely to be in use, and the sink is told all of its memory. */
enum status agent_process_drain(struct agent_process *process, struct sample_sink *sink, bool native_boundaries,
                                void *scratch, bool is_last, uint64_t now_ns) MUST_USE;
/* Whether it still lives, and has not become another program, as far as can be told. */
bool agent_process_alive(const struct agent_process *process);
/* Whether it is known to have become another program. */
bool agent_process_has_execed(const struct agent_process *process);
/* Whether it is still the program that made the region. True when that cannot be told. */
bool agent_process_is_same(const struct agent_process *process);

#endif

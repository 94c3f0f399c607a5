/* What the files of the recorder share. */
#ifndef STROBE_CLI_RECORDER_STATE_H
#define STROBE_CLI_RECORDER_STATE_H

#include "base/map.h"
#include "cli/progress.h"
#include "cli/recorder.h"

/* The stacks of the call paths that a process allocated from: the ids of those that were written, by path. */
struct recorded_sites {
    uint32_t serial;  /* of the sample_sites that these are of */
    uint32_t epoch;   /* of the capture in which the ids hold */
    uint32_t *stacks; /* [0] is 0, as of all that have not been written */
    size_t capacity;
    uint32_t *climbed; /* paths on the way to the outermost frame, while one is being written */
    size_t climbed_capacity;
};
void recorded_sites_release(struct recorded_sites *sites);

struct recorded_process {
    struct map frames; /* their ids in the capture: (code serial, instruction) → frame */
    struct recorded_sites sites;
    bool told[CAPTURE_MEASURES]; /* of these parts there was an event */
    uint32_t memory_serial;      /* of the sample_sites of the program whose memory was told last; 0: none was */
    uint64_t exec_count;
    const struct sampled_process *sampled; /* NULL: it has ended */
    struct sample_counters counted;        /* as the capture has them */
};

/* The last stack of a thread. ids[i] is that of the stack that ends with its i-th frame, outermost first. */
struct recorded_stack {
    uint32_t *ids;
    size_t valid;
    size_t capacity;
    uint32_t epoch;
};

/* Who looks from inside and who looks from outside each tell what is unchanged since they looked. */
enum { FROM_INSIDE, FROM_OUTSIDE, VIEWS };

struct recorded_thread {
    uint32_t id;
    struct recorded_stack stacks[VIEWS];
};

struct recorder {
    struct sample_sink sink; /* must be first */
    struct capture_writer *writer;
    struct recorder_options options;
    uint32_t epoch; /* of the ids that the processes' maps hold */
    uint64_t idle_count;
    uint64_t first_idle_ns, counted_ns; /* when processes' counters were told last */
    uint32_t known_count;               /* processes that were told of */
    char news[80];                      /* to be said to the user when there is a sample to prove it */
    bool warned_of_version;
    uint64_t unwatched; /* of all processes */
    struct recorded_process *processes;
    size_t process_count;
    struct progress progress;
};

/* The id of a frame of the process. Ids hold until the capture's epoch ends. */
enum status recorder_frame_id(struct recorder *recorder, const struct sampled_process *process,
                              const struct sample_frame *frame, uint32_t *id) MUST_USE;
/* Forgets frames' ids when the capture has begun another epoch. */
void recorder_follow_epoch(struct recorder *recorder);

/* A sink's, for memory. */
enum status recorder_take_allocations(struct sample_sink *sink, struct sampled_thread *thread,
                                      const struct sample_sites *sites, const struct sample_allocation *allocations,
                                      size_t count) MUST_USE;
enum status recorder_take_memory(struct sample_sink *sink, const struct sample_memory *memory) MUST_USE;

#endif

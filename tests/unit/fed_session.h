/* A session that is fed by the test itself, in the place of an agent, and what its sink heard. */
#ifndef STROBE_TESTS_FED_SESSION_H
#define STROBE_TESTS_FED_SESSION_H

#include "sampler/agent_session.h"
#include "wire/ring.h"

enum { MAX_PLACES = 32, MAX_SEEN = 4096, TEXT_BYTES = 512, PYTHON_3_14 = 0x030e00f0 };

/* What it heard of the memory of a call path: sums of what it was told. */
struct seen_memory {
    char place[TEXT_BYTES];
    struct sample_allocation allocated;
    struct sample_held held;
};

/* What a sink heard. */
struct seen {
    struct sample_sink sink;           /* must be first */
    char stacks[MAX_SEEN][TEXT_BYTES]; /* of the samples: "outermost:line;...;innermost:line" */
    uint64_t weights[MAX_SEEN];
    size_t sample_count;
    uint32_t serials[MAX_SEEN]; /* of the innermost frames */
    int processes, ended_processes, threads, ended_threads;
    uint64_t thread_cpu_ns;
    struct sample_counters counters;
    pid_t pid;
    struct seen_memory memory[MAX_PLACES];
    size_t memory_count;
    uint64_t peak_bytes, highest_bytes;
};

/* A producer: what the agent does, in this process. */
struct producer {
    char path[512];
    int fd;
    void *region;
    struct wire_ring rings[4];
};

void producer_make(struct producer *producer, const struct agent_session *session, int number);
void producer_publish(struct producer *producer);
void producer_end(struct producer *producer);

void producer_start_thread(struct producer *producer, uint32_t index, uint64_t start_cpu_ns);
void producer_end_thread(struct producer *producer, uint32_t index, uint64_t end_cpu_ns);

/* Records. Frames are innermost first. A code object has two instructions on each line from first_line on. */
void producer_put_code(struct producer *producer, uint32_t index, uint64_t address, const char *name,
                       int32_t first_line);
void producer_put_sample(struct producer *producer, uint32_t index, uint64_t cpu_ns, uint32_t kept,
                         const struct wire_frame *frames, uint32_t count, uint16_t flags);
void producer_put_alloc(struct producer *producer, uint32_t index, const struct wire_alloc *alloc,
                        const struct wire_frame *frames, uint32_t count);
void producer_put_free(struct producer *producer, uint32_t index, uint64_t id, uint64_t footprint_bytes);
void producer_put_start(struct producer *producer, uint32_t index, uint64_t id, const struct wire_frame *frames,
                        uint32_t count);

struct agent_session *fed_session_open(struct seen *seen);
void fed_session_drain(struct agent_session *session);
void fed_session_finish(struct agent_session *session);

#endif

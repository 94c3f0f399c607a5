/* What a target's agent may have written into its rings: any records, of two threads. The input is pieces, each behind
 * four bytes: which ring, and whether all is settled before; the record's type; its flags; how many times 8 bytes it
 * has behind its header. All that is told of it must refer to what was told. */
#include "base/bytes.h"
#include "base/clock.h"
#include "sampler/agent_thread.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { THREADS = 2, MAX_INPUT_BYTES = 1 << 16, PIECE_HEAD_BYTES = 4, SETTLES = 2 };

struct target {
    struct sample_sink sink;
    struct sampled_process process;
    struct wire_region header;
    struct wire_slot slots[THREADS];
    struct wire_ring rings[THREADS];
    struct agent_thread threads[THREADS];
    struct agent_codes codes;
    uint32_t last_serial;
    struct agent_memory memory;
    struct sample_counters counters;
    uint64_t unseen_ns;
    struct sample_looks looks;
    struct agent_reading reading;
};

static void require(bool condition) {
    if (!condition)
        abort();
}

static void check_sites(const struct sample_sites *sites, uint32_t path) {
    require(path < sites->path_count);
    for (; path != 0; path = sites->paths[path].caller) {
        require(sites->paths[path].caller < path);
        const struct sample_frame *frame = &sites->frames[sites->paths[path].frame];
        require((frame->code != NULL) == (frame->kind == SAMPLE_FRAME_PYTHON) && frame->kind <= SAMPLE_FRAME_LOST);
        require(frame->code == NULL || frame->code->serial > 0);
    }
}

static enum status see_sample(struct sample_sink *sink, const struct sample *sample) {
    (void)sink;
    require(sample->unchanged <= sample->count);
    for (size_t i = 0; i < sample->count; i++)
        require((sample->frames[i].code != NULL) == (sample->frames[i].kind == SAMPLE_FRAME_PYTHON));
    return STATUS_OK;
}

static enum status see_allocations(struct sample_sink *sink, struct sampled_thread *thread,
                                   const struct sample_sites *sites, const struct sample_allocation *allocations,
                                   size_t count) {
    (void)sink;
    (void)thread;
    for (size_t i = 0; i < count; i++)
        check_sites(sites, allocations[i].path);
    return STATUS_OK;
}

static enum status see_memory(struct sample_sink *sink, const struct sample_memory *memory) {
    (void)sink;
    for (size_t i = 0; i < memory->change_count; i++)
        check_sites(memory->sites, memory->changes[i].path);
    for (size_t i = 1; i < memory->footprint_count; i++)
        require(memory->footprint[i - 1].time_ns <= memory->footprint[i].time_ns);
    return STATUS_OK;
}

static void begin(struct target *target) {
    uint64_t now_ns = clock_monotonic_ns();
    target->sink = (struct sample_sink){.sample = see_sample, .allocations = see_allocations, .memory = see_memory};
    target->header.memory_stride_bytes = 512 << 10;
    target->codes = (struct agent_codes){.format = linetable_format_of(14), .last_serial = &target->last_serial};
    target->last_serial = AGENT_CODE_FIRST_SERIAL;
    require(agent_memory_init(&target->memory, &target->header, &target->codes) == STATUS_OK);
    for (size_t i = 0; i < THREADS; i++) {
        target->slots[i].starter_id = i;
        target->rings[i] = (struct wire_ring){&target->slots[i], malloc(WIRE_RING_BYTES), 0};
        require(target->rings[i].bytes != NULL);
        agent_thread_init(&target->threads[i], &target->process, &target->rings[i]);
    }
    target->memory.main = &target->threads[0];
    target->reading = (struct agent_reading){
        .sink = &target->sink,
        .counters = &target->counters,
        .codes = &target->codes,
        .allocated = &target->memory,
        .native_boundaries = true,
        .unseen_ns = &target->unseen_ns,
        .looks = &target->looks,
        .stride_ns = NS_PER_MS,
        .from_ns = now_ns - NS_PER_S,
        .now_ns = now_ns,
        .scratch = malloc(WIRE_RING_BYTES),
    };
    require(target->reading.scratch != NULL);
}

static void settle(struct target *target, bool everything) {
    agent_memory_begin(&target->memory, clock_monotonic_ns());
    for (size_t i = 0; i < THREADS; i++)
        require(agent_thread_drain(&target->threads[i], &target->reading) == STATUS_OK);
    require(agent_memory_settle(&target->memory, &target->header, everything) == STATUS_OK);
    for (size_t i = 0; i < THREADS; i++)
        require(agent_memory_tell_thread(&target->memory, &target->threads[i], &target->sink) == STATUS_OK);
    require(agent_memory_tell(&target->memory, &target->process, &target->sink) == STATUS_OK);
}

static void end(struct target *target) {
    settle(target, true);
    for (size_t i = 0; i < THREADS; i++) {
        agent_thread_release(&target->threads[i], &target->codes);
        free(target->rings[i].bytes);
    }
    agent_memory_release(&target->memory);
    agent_codes_release(&target->codes);
    free(target->reading.scratch);
}

/* What stands beside the rings is the target's, too. */
static void falsify_header(struct target *target, const uint8_t *bytes, size_t size_bytes) {
    uint64_t values[4] = {0};
    memcpy(values, bytes, size_bytes < sizeof values ? size_bytes : sizeof values);
    atomic_store(&target->header.footprint_bytes, (int64_t)values[0]);
    atomic_store(&target->header.peak_bytes, values[1]);
    atomic_store(&target->header.peak_ns, values[2]);
    atomic_store(&target->header.lost_memory_bytes, values[3]);
}

static void put(struct target *target, const uint8_t *head, const uint8_t *body, size_t body_bytes) {
    struct wire_ring *ring = &target->rings[head[0] % THREADS];
    uint64_t position = wire_ring_position(ring);
    if (head[1] > WIRE_COUNTS) {
        falsify_header(target, body, body_bytes);
        return;
    }
    struct wire_record *record =
        wire_ring_reserve(ring, &position, (enum wire_type)head[1], sizeof *record + body_bytes);
    if (record == NULL)
        return;
    record->flags = head[2];
    memcpy(record + 1, body, body_bytes);
    wire_ring_commit(ring, position);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static struct target target;
    if (size_bytes > MAX_INPUT_BYTES)
        return 0;
    memset(&target, 0, sizeof target);
    begin(&target);
    while (size_bytes >= PIECE_HEAD_BYTES) {
        const uint8_t *head = data;
        size_t body_bytes = (size_t)head[3] * 8;
        data += PIECE_HEAD_BYTES;
        size_bytes -= PIECE_HEAD_BYTES;
        body_bytes = body_bytes < size_bytes ? body_bytes : size_bytes & ~(size_t)7;
        if ((head[0] & SETTLES) != 0)
            settle(&target, false);
        put(&target, head, data, body_bytes);
        data += body_bytes;
        size_bytes -= body_bytes;
    }
    end(&target);
    return 0;
}

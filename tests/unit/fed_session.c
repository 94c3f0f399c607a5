#include "fed_session.h"

#include "base/clock.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static enum status see_process(struct sample_sink *sink, struct sampled_process *process) {
    struct seen *seen = (struct seen *)sink;
    process->number = (uint32_t)seen->processes++;
    seen->pid = process->pid;
    return STATUS_OK;
}

static enum status see_process_end(struct sample_sink *sink, struct sampled_process *process,
                                   const struct sample_counters *counters) {
    (void)process;
    ((struct seen *)sink)->ended_processes++;
    ((struct seen *)sink)->counters = *counters;
    return STATUS_OK;
}

static enum status see_thread(struct sample_sink *sink, struct sampled_thread *thread) {
    (void)thread;
    ((struct seen *)sink)->threads++;
    return STATUS_OK;
}

static enum status see_thread_end(struct sample_sink *sink, struct sampled_thread *thread) {
    ((struct seen *)sink)->ended_threads++;
    ((struct seen *)sink)->thread_cpu_ns += thread->cpu_ns;
    return STATUS_OK;
}

static enum status see_sample(struct sample_sink *sink, const struct sample *sample) {
    struct seen *seen = (struct seen *)sink;
    assert_int_equal(sample->clock, SAMPLE_CLOCK_CPU);
    assert_int_equal(sample->cpu.python_ns + sample->cpu.native_ns + sample->cpu.kernel_ns, sample->weight_ns);
    assert_true(sample->unchanged <= sample->count);
    assert_true(sample->time_ns <= clock_monotonic_ns() && sample->weight_ns < 60 * NS_PER_S);
    if (seen->sample_count == MAX_SEEN)
        return STATUS_OK;
    char *text = seen->stacks[seen->sample_count];
    size_t length = 0;
    for (size_t i = 0; i < sample->count && length < TEXT_BYTES; i++) {
        const struct sample_frame *frame = &sample->frames[i];
        struct source_position position = {-1, -1, -1, -1};
        const char *name = frame->kind == SAMPLE_FRAME_CUT ? "CUT" : frame->code == NULL ? "?" : frame->code->name;
        if (frame->code != NULL && frame->instruction_bytes >= 0)
            (void)linetable_lookup(&frame->code->lines, (uint32_t)frame->instruction_bytes, &position);
        length +=
            (size_t)snprintf(text + length, TEXT_BYTES - length, "%s%s:%d", i > 0 ? ";" : "", name, (int)position.line);
        seen->serials[seen->sample_count] = frame->code != NULL ? frame->code->serial : 0;
    }
    seen->weights[seen->sample_count++] = sample->weight_ns;
    return STATUS_OK;
}

static const char *frame_name(const struct sample_frame *frame) {
    static const char *const names[] = {[SAMPLE_FRAME_NATIVE_THREAD] = "THREAD",
                                        [SAMPLE_FRAME_STARTUP] = "STARTUP",
                                        [SAMPLE_FRAME_SHUTDOWN] = "SHUTDOWN",
                                        [SAMPLE_FRAME_LOST] = "LOST",
                                        [SAMPLE_FRAME_UNREADABLE] = "UNREADABLE"};
    return frame->code != NULL ? frame->code->name : names[frame->kind];
}

static struct seen_memory *memory_of(struct seen *seen, const struct sample_sites *sites, uint32_t path) {
    char place[TEXT_BYTES] = "", before[TEXT_BYTES];
    for (; path != 0; path = sites->paths[path].caller) {
        (void)snprintf(before, sizeof before, "%s", place);
        snprintf(place, sizeof place, "%s%s%.*s", frame_name(&sites->frames[sites->paths[path].frame]),
                 before[0] != '\0' ? ";" : "", 400, before);
    }
    for (size_t i = 0; i < seen->memory_count; i++)
        if (strcmp(seen->memory[i].place, place) == 0)
            return &seen->memory[i];
    assert_true(seen->memory_count < MAX_PLACES);
    (void)snprintf(seen->memory[seen->memory_count].place, TEXT_BYTES, "%s", place);
    return &seen->memory[seen->memory_count++];
}

static enum status see_allocations(struct sample_sink *sink, struct sampled_thread *thread,
                                   const struct sample_sites *sites, const struct sample_allocation *allocations,
                                   size_t count) {
    (void)thread;
    for (size_t i = 0; i < count; i++) {
        struct sample_allocation *sum = &memory_of((struct seen *)sink, sites, allocations[i].path)->allocated;
        sum->alloc_bytes += allocations[i].alloc_bytes;
        sum->alloc_count += allocations[i].alloc_count;
        sum->alloc_variance += allocations[i].alloc_variance;
        sum->python_bytes += allocations[i].python_bytes;
        sum->copy_bytes += allocations[i].copy_bytes;
    }
    return STATUS_OK;
}

static enum status see_memory(struct sample_sink *sink, const struct sample_memory *memory) {
    struct seen *seen = (struct seen *)sink;
    for (size_t i = 0; i < memory->change_count; i++) {
        /* Different paths may look the same here. */
        struct sample_held *sum = &memory_of(seen, memory->sites, memory->changes[i].path)->held;
        sum->live_bytes += memory->changes[i].now.live_bytes - memory->changes[i].before.live_bytes;
        sum->peak_bytes += memory->changes[i].now.peak_bytes - memory->changes[i].before.peak_bytes;
    }
    for (size_t i = 0; i < memory->footprint_count; i++)
        if (memory->footprint[i].value > seen->highest_bytes)
            seen->highest_bytes = memory->footprint[i].value;
    seen->peak_bytes = memory->peak_bytes;
    return STATUS_OK;
}

static enum status see_time(struct sample_sink *sink, uint64_t now_ns) {
    (void)sink;
    (void)now_ns;
    return STATUS_OK;
}

static void seen_init(struct seen *seen) {
    memset(seen, 0, sizeof *seen);
    seen->sink = (struct sample_sink){.process_started = see_process,
                                      .process_ended = see_process_end,
                                      .thread_started = see_thread,
                                      .thread_renamed = see_thread,
                                      .thread_ended = see_thread_end,
                                      .sample = see_sample,
                                      .idle = see_time,
                                      .allocations = see_allocations,
                                      .memory = see_memory};
}

void producer_make(struct producer *producer, const struct agent_session *session, int number) {
    snprintf(producer->path, sizeof producer->path, "%s/%d-%d.region", agent_session_folder(session), (int)getpid(),
             number);
    producer->fd = open(producer->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(producer->fd >= 0);
    assert_int_equal(ftruncate(producer->fd, (off_t)WIRE_REGION_BYTES), 0);
    producer->region = mmap(NULL, WIRE_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, producer->fd, 0);
    assert_ptr_not_equal(producer->region, MAP_FAILED);
    for (uint32_t i = 0; i < 4; i++)
        producer->rings[i] = (struct wire_ring){wire_region_slot(producer->region, i),
                                                (uint8_t *)producer->region + wire_ring_offset(i), 0};
}

void producer_publish(struct producer *producer) {
    struct wire_region *header = producer->region;
    header->version = WIRE_VERSION;
    header->pid = getpid();
    header->parent_pid = getppid();
    header->python_version = PYTHON_3_14;
    header->start_ns = clock_monotonic_ns();
    header->period_ns = NS_PER_MS;
    atomic_store(&header->state, WIRE_SAMPLING);
    atomic_store(&header->magic, WIRE_MAGIC);
}

void producer_end(struct producer *producer) {
    munmap(producer->region, WIRE_REGION_BYTES);
    close(producer->fd);
}

void producer_start_thread(struct producer *producer, uint32_t index, uint64_t start_cpu_ns) {
    struct wire_slot *slot = producer->rings[index].slot;
    slot->tid = 1000 + index;
    slot->thread_id = 0x7f0000000000 + index;
    slot->start_ns = clock_monotonic_ns();
    slot->start_cpu_ns = start_cpu_ns;
    atomic_store(&slot->written, 0);
    atomic_store(&slot->read, 0);
    atomic_store(&slot->state, WIRE_SLOT_LIVE);
}

void producer_end_thread(struct producer *producer, uint32_t index, uint64_t end_cpu_ns) {
    producer->rings[index].slot->end_ns = clock_monotonic_ns();
    producer->rings[index].slot->end_cpu_ns = end_cpu_ns;
    atomic_store(&producer->rings[index].slot->state, WIRE_SLOT_ENDED);
}

/* Two instructions on each line from first_line on: 3.11's short form of no columns (code 13). */
static const uint8_t LINES[] = {0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 1, 2, 0x80 | 13 << 3 | 1, 2};

void producer_put_code(struct producer *producer, uint32_t index, uint64_t address, const char *name,
                       int32_t first_line) {
    struct wire_ring *ring = &producer->rings[index];
    uint64_t position = wire_ring_position(ring);
    size_t name_bytes = strlen(name), padded = (name_bytes + 7) & ~(size_t)7;
    struct wire_code *code =
        wire_ring_reserve(ring, &position, WIRE_CODE, sizeof *code + 3 * padded + ((sizeof LINES + 7) & ~(size_t)7));
    assert_non_null(code);
    struct wire_record record = code->record;
    *code = (struct wire_code){.record = record,
                               .address = address,
                               .bytecode_bytes = 12,
                               .first_line = first_line,
                               .name_kind = 1,
                               .qualname_kind = 1,
                               .filename_kind = 1,
                               .name_bytes = (uint32_t)name_bytes,
                               .qualname_bytes = (uint32_t)name_bytes,
                               .filename_bytes = (uint32_t)name_bytes,
                               .table_bytes = sizeof LINES,
                               .table_length = sizeof LINES};
    uint8_t *at = (uint8_t *)(code + 1);
    for (int i = 0; i < 3; i++, at += padded)
        for (size_t j = 0; j < name_bytes; j++)
            at[j] = (uint8_t)name[j];
    memcpy(at, LINES, sizeof LINES);
    wire_ring_commit(ring, position);
}

/* `frames` innermost first, as in a record. */
void producer_put_sample(struct producer *producer, uint32_t index, uint64_t cpu_ns, uint32_t kept,
                         const struct wire_frame *frames, uint32_t count, uint16_t flags) {
    struct wire_ring *ring = &producer->rings[index];
    uint64_t position = wire_ring_position(ring);
    struct wire_sample *sample =
        wire_ring_reserve(ring, &position, WIRE_SAMPLE, sizeof *sample + count * sizeof frames[0]);
    assert_non_null(sample);
    struct wire_record record = sample->record;
    record.flags = flags;
    *sample = (struct wire_sample){
        .record = record, .time_ns = clock_monotonic_ns(), .cpu_ns = cpu_ns, .kept = kept, .frame_count = count};
    if (count > 0)
        memcpy(sample + 1, frames, count * sizeof frames[0]);
    wire_ring_commit(ring, position);
}

void producer_put_alloc(struct producer *producer, uint32_t index, const struct wire_alloc *alloc,
                        const struct wire_frame *frames, uint32_t count) {
    struct wire_ring *ring = &producer->rings[index];
    uint64_t position = wire_ring_position(ring);
    struct wire_alloc *put = wire_ring_reserve(ring, &position, WIRE_ALLOC, sizeof *put + count * sizeof frames[0]);
    assert_non_null(put);
    struct wire_record record = put->record;
    record.flags = alloc->record.flags;
    *put = *alloc;
    put->record = record;
    put->frame_count = count;
    put->time_ns = alloc->time_ns != 0 ? alloc->time_ns : clock_monotonic_ns();
    if (count > 0)
        memcpy(put + 1, frames, count * sizeof frames[0]);
    wire_ring_commit(ring, position);
}

void producer_put_free(struct producer *producer, uint32_t index, uint64_t id, uint64_t footprint_bytes) {
    struct wire_ring *ring = &producer->rings[index];
    uint64_t position = wire_ring_position(ring);
    struct wire_free *put = wire_ring_reserve(ring, &position, WIRE_FREE, sizeof *put);
    assert_non_null(put);
    put->time_ns = clock_monotonic_ns();
    put->id = id;
    put->footprint_bytes = footprint_bytes;
    wire_ring_commit(ring, position);
}

void producer_put_start(struct producer *producer, uint32_t index, uint64_t id, const struct wire_frame *frames,
                        uint32_t count) {
    struct wire_ring *ring = &producer->rings[index];
    uint64_t position = wire_ring_position(ring);
    struct wire_start *put = wire_ring_reserve(ring, &position, WIRE_START, sizeof *put + count * sizeof *frames);
    assert_non_null(put);
    put->time_ns = clock_monotonic_ns();
    put->id = id;
    put->frame_count = count;
    memcpy(put + 1, frames, count * sizeof *frames);
    wire_ring_commit(ring, position);
}

struct agent_session *fed_session_open(struct seen *seen) {
    struct agent_session *session = NULL;
    struct error error = {0};
    seen_init(seen);
    assert_int_equal(agent_session_open(&session, &error), STATUS_OK);
    agent_session_start(session, &seen->sink, false);
    return session;
}

void fed_session_drain(struct agent_session *session) {
    assert_int_equal(agent_session_drain(session, clock_monotonic_ns()), STATUS_OK);
}

void fed_session_finish(struct agent_session *session) {
    assert_int_equal(agent_session_finish(session), STATUS_OK);
    agent_session_close(session);
}

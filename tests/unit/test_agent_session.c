#include "sampler/agent_session.h"

#include "base/clock.h"
#include "wire/ring.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

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

/* A producer: what the agent does, in this process. */
struct producer {
    char path[512];
    int fd;
    void *region;
    struct wire_ring rings[4];
};

static void producer_make(struct producer *producer, const struct agent_session *session, int number) {
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

static void producer_publish(struct producer *producer) {
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

static void producer_end(struct producer *producer) {
    munmap(producer->region, WIRE_REGION_BYTES);
    close(producer->fd);
}

static void start_thread(struct producer *producer, uint32_t index, uint64_t start_cpu_ns) {
    struct wire_slot *slot = producer->rings[index].slot;
    slot->tid = 1000 + index;
    slot->thread_id = 0x7f0000000000 + index;
    slot->start_ns = clock_monotonic_ns();
    slot->start_cpu_ns = start_cpu_ns;
    atomic_store(&slot->written, 0);
    atomic_store(&slot->read, 0);
    atomic_store(&slot->state, WIRE_SLOT_LIVE);
}

static void end_thread(struct producer *producer, uint32_t index, uint64_t end_cpu_ns) {
    producer->rings[index].slot->end_ns = clock_monotonic_ns();
    producer->rings[index].slot->end_cpu_ns = end_cpu_ns;
    atomic_store(&producer->rings[index].slot->state, WIRE_SLOT_ENDED);
}

/* Two instructions on each line from first_line on: 3.11's short form of no columns (code 13). */
static const uint8_t LINES[] = {0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 1, 2, 0x80 | 13 << 3 | 1, 2};

static void put_code(struct producer *producer, uint32_t index, uint64_t address, const char *name,
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
static void put_sample(struct producer *producer, uint32_t index, uint64_t cpu_ns, uint32_t kept,
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

static void put_alloc(struct producer *producer, uint32_t index, const struct wire_alloc *alloc,
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

static void put_free(struct producer *producer, uint32_t index, uint64_t id, uint64_t footprint_bytes) {
    struct wire_ring *ring = &producer->rings[index];
    uint64_t position = wire_ring_position(ring);
    struct wire_free *put = wire_ring_reserve(ring, &position, WIRE_FREE, sizeof *put);
    assert_non_null(put);
    put->time_ns = clock_monotonic_ns();
    put->id = id;
    put->footprint_bytes = footprint_bytes;
    wire_ring_commit(ring, position);
}

static void put_start(struct producer *producer, uint32_t index, uint64_t id, const struct wire_frame *frames,
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

static struct agent_session *open_session(struct seen *seen) {
    struct agent_session *session = NULL;
    struct error error = {0};
    seen_init(seen);
    assert_int_equal(agent_session_open(&session, &error), STATUS_OK);
    agent_session_start(session, &seen->sink, false);
    return session;
}

static void drain(struct agent_session *session) {
    assert_int_equal(agent_session_drain(session, clock_monotonic_ns()), STATUS_OK);
}

static void finish(struct agent_session *session) {
    assert_int_equal(agent_session_finish(session), STATUS_OK);
    agent_session_close(session);
}

static void test_stacks_and_weights(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_session(&seen);
    producer_make(&producer, session, 0);
    drain(session);
    assert_int_equal(seen.processes, 0);
    producer_publish(&producer);
    start_thread(&producer, 0, 5000);
    put_code(&producer, 0, 0x1000, "main", 10);
    put_code(&producer, 0, 0x2000, "leaf", 20);
    put_sample(&producer, 0, 6000, 0,
               (const struct wire_frame[]){{0x2000, 4, WIRE_FRAME_PYTHON}, {0x1000, 0, WIRE_FRAME_PYTHON}}, 2, 0);
    drain(session);
    assert_int_equal(seen.processes, 1);
    assert_int_equal(seen.pid, getpid());
    /* The outer frame is kept; then its look failed; then leaf calls itself from C. */
    put_sample(&producer, 0, 6500, 1, (const struct wire_frame[]){{0x2000, 8, WIRE_FRAME_PYTHON}}, 1, 0);
    put_sample(&producer, 0, 7000, 0, NULL, 0, WIRE_SAMPLE_TORN);
    put_sample(&producer, 0, 9000, 2,
               (const struct wire_frame[]){{0x2000, 0, WIRE_FRAME_PYTHON}, {0, -1, WIRE_FRAME_NATIVE}}, 2, 0);
    put_sample(&producer, 0, 9001, 4, NULL, 0, 0);
    end_thread(&producer, 0, 9400);
    drain(session);
    assert_int_equal(seen.sample_count, 5);
    assert_string_equal(seen.stacks[0], "main:10;leaf:21");
    assert_string_equal(seen.stacks[1], "main:10;leaf:22");
    assert_string_equal(seen.stacks[2], "main:10;leaf:22;leaf:20");
    assert_string_equal(seen.stacks[3], "main:10;leaf:22;leaf:20");
    assert_string_equal(seen.stacks[4], "main:10;leaf:22;leaf:20");
    const uint64_t weights[] = {1000, 500, 2500, 1, 399};
    assert_memory_equal(seen.weights, weights, sizeof weights);
    assert_int_equal(seen.ended_threads, 1);
    assert_int_equal(seen.thread_cpu_ns, 4400);
    assert_int_equal(atomic_load(&producer.rings[0].slot->state), WIRE_SLOT_FREE);
    finish(session);
    assert_int_equal(seen.ended_processes, 1);
    producer_end(&producer);
}

/* An address comes to mean another code object, and the same code object is told of by two rings. */
static void test_code_is_told_apart(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_session(&seen);
    const struct wire_frame frame[] = {{0x1000, 0, WIRE_FRAME_PYTHON}};
    producer_make(&producer, session, 0);
    producer_publish(&producer);
    start_thread(&producer, 0, 0);
    start_thread(&producer, 3, 0);
    put_code(&producer, 0, 0x1000, "first", 1);
    put_sample(&producer, 0, 1, 0, frame, 1, 0);
    put_code(&producer, 3, 0x1000, "first", 1);
    put_sample(&producer, 3, 1, 0, frame, 1, 0);
    drain(session);
    put_code(&producer, 0, 0x1000, "second", 1);
    put_sample(&producer, 0, 2, 0, frame, 1, 0);
    put_sample(&producer, 3, 2, 0, frame, 1, 0);
    put_sample(&producer, 0, 3, 0, (const struct wire_frame[]){{0x9000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    drain(session);
    assert_int_equal(seen.sample_count, 5);
    assert_string_equal(seen.stacks[0], "first:1");
    assert_string_equal(seen.stacks[1], "first:1");
    assert_int_equal(seen.serials[0], seen.serials[1]);
    assert_string_equal(seen.stacks[2], "second:1");
    assert_int_not_equal(seen.serials[2], seen.serials[0]);
    assert_string_equal(seen.stacks[3], "?:-1");
    assert_string_equal(seen.stacks[4], "first:1");
    finish(session);
    producer_end(&producer);
}

static void test_what_is_lost_is_a_gap(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_session(&seen);
    producer_make(&producer, session, 0);
    producer_publish(&producer);
    start_thread(&producer, 0, 0);
    put_code(&producer, 0, 0x1000, "leaf", 1);
    put_sample(&producer, 0, 10, 2, (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    atomic_store(&producer.rings[0].slot->lost_records, 7);
    atomic_store(&producer.rings[0].slot->torn, 3);
    drain(session);
    assert_string_equal(seen.stacks[0], "CUT:-1;leaf:1");
    finish(session);
    assert_int_equal(seen.counters.taken, 1);
    assert_int_equal(seen.counters.missed, 7);
    assert_int_equal(seen.counters.inconsistent, 3);
    assert_int_equal(seen.counters.errors, 1);
    producer_end(&producer);
}

/* Threads too short for their clock to strike leave their time to the first stroke of another one; what is left over at
 * the end has no stack. */
static void test_short_threads(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_session(&seen);
    producer_make(&producer, session, 0);
    producer_publish(&producer);
    for (uint32_t i = 0; i < 3; i++)
        start_thread(&producer, i, 100);
    drain(session);
    end_thread(&producer, 0, 800);
    drain(session);
    assert_int_equal(seen.sample_count, 0);
    put_code(&producer, 1, 0x1000, "work", 1);
    put_sample(&producer, 1, 1100, 0, (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    put_sample(&producer, 1, 1200, 1, NULL, 0, 0);
    drain(session);
    end_thread(&producer, 2, 130);
    drain(session);
    end_thread(&producer, 1, 1200);
    drain(session);
    assert_int_equal(seen.sample_count, 3);
    const uint64_t weights[] = {1700, 100, 30};
    assert_memory_equal(seen.weights, weights, sizeof weights);
    assert_string_equal(seen.stacks[0], "work:1");
    assert_string_equal(seen.stacks[2], "");
    assert_int_equal(seen.thread_cpu_ns, 700 + 1100 + 30);
    finish(session);
    producer_end(&producer);
}

static void test_a_program_that_execs_is_another(void **state) {
    (void)state;
    static struct seen seen;
    struct producer first, second;
    struct agent_session *session = open_session(&seen);
    producer_make(&first, session, 0);
    producer_publish(&first);
    start_thread(&first, 0, 0);
    drain(session);
    put_code(&first, 0, 0x1000, "last_words", 1);
    put_sample(&first, 0, 10, 0, (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    producer_make(&second, session, 1);
    producer_publish(&second);
    drain(session);
    assert_string_equal(seen.stacks[0], "last_words:1");
    assert_int_equal(seen.processes, 2);
    assert_int_equal(seen.ended_processes, 1);
    assert_int_equal(access(first.path, F_OK), -1);
    finish(session);
    assert_int_equal(seen.ended_processes, 2);
    assert_int_equal(atomic_load(&((struct wire_region *)second.region)->control), WIRE_CONTROL_PAUSE);
    producer_end(&first);
    producer_end(&second);
}

static void test_an_agent_that_is_off_says_why(void **state) {
    (void)state;
    static struct seen seen;
    struct agent_session *session = open_session(&seen);
    struct producer whole;
    char path[600];
    struct wire_region header = {.magic = WIRE_MAGIC, .version = WIRE_VERSION, .pid = 77, .state = WIRE_OFF};
    (void)snprintf(header.reason, sizeof header.reason, "there is no room");
    snprintf(path, sizeof path, "%s/77-0.region", agent_session_folder(session));
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, &header, sizeof header), sizeof header);
    close(fd);
    producer_make(&whole, session, 0);
    (void)snprintf(((struct wire_region *)whole.region)->reason, WIRE_REASON_BYTES, "it is tired");
    producer_publish(&whole);
    atomic_store(&((struct wire_region *)whole.region)->state, WIRE_OFF);
    drain(session);
    const char *complaint = agent_session_next_complaint(session);
    assert_non_null(strstr(complaint, "process 77: there is no room"));
    assert_non_null(strstr(agent_session_next_complaint(session), "it is tired"));
    assert_null(agent_session_next_complaint(session));
    finish(session);
    producer_end(&whole);
}

/* xorshift64 */
/* So that there are `count` more to be had. */
static void leave_files(int count) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)(fd + count);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* One region can be opened, and nothing of its process; the other cannot. */
static void test_too_few_files(void **state) {
    (void)state;
    static struct seen seen;
    struct rlimit before;
    struct agent_session *session = open_session(&seen);
    struct producer producer;
    char path[600];
    snprintf(path, sizeof path, "%s/%d-0.region", agent_session_folder(session), INT32_MAX);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, (off_t)WIRE_REGION_BYTES), 0);
    producer_make(&producer, session, 0);
    start_thread(&producer, 0, 0);
    producer_publish(&producer);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    leave_files(1);
    drain(session);
    assert_int_equal(agent_session_drain(session, clock_monotonic_ns() + NS_PER_S), STATUS_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(seen.processes, 1);
    assert_int_equal(seen.ended_processes, 0);
    assert_non_null(strstr(agent_session_next_complaint(session), "process 2147483647: too many open files"));
    assert_null(agent_session_next_complaint(session));
    finish(session);
    producer_end(&producer);
    close(fd);
}

static uint64_t next_random(uint64_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

/* Falsifies what a well-meant producer wrote, byte by byte; strobe must neither die nor wait. */
static void test_hostile_regions(void **state) {
    (void)state;
    static struct seen seen;
    uint64_t random = 88172645463325252u;
    struct agent_session *session = open_session(&seen);
    for (int round = 0; round < 300; round++) {
        struct producer producer;
        producer_make(&producer, session, round);
        ((struct wire_region *)producer.region)->memory_stride_bytes = (uint64_t)round % 2;
        producer_publish(&producer);
        start_thread(&producer, 1, 0);
        for (uint32_t i = 0; i < 20; i++) {
            put_code(&producer, 1, 0x1000 * (i + 1), "name", 1);
            put_sample(&producer, 1, i, i, (const struct wire_frame[]){{0x1000 * (i + 1), 0, WIRE_FRAME_PYTHON}}, 1, 0);
            put_alloc(&producer, 1, &(struct wire_alloc){.id = i / 2, .weight_bytes = 7, .kept = i}, NULL, 0);
            put_free(&producer, 1, i / 3, 9);
        }
        uint64_t written = wire_ring_position(&producer.rings[1]);
        for (int i = 0; i < 8; i++)
            producer.rings[1].bytes[next_random(&random) % written] ^= (uint8_t)(1u << next_random(&random) % 8);
        if (round % 4 == 1)
            atomic_store(&producer.rings[1].slot->written, next_random(&random));
        if (round % 4 == 2)
            ((uint8_t *)producer.region)[8 + next_random(&random) % (WIRE_SLOTS_OFFSET - 8)] ^= 0xff;
        if (round % 4 == 3)
            for (int i = 0; i < 64; i++)
                ((uint8_t *)
                     producer.region)[WIRE_SLOTS_OFFSET + next_random(&random) % (WIRE_SLOTS * WIRE_SLOT_BYTES)] =
                    (uint8_t)next_random(&random);
        drain(session);
        producer_end(&producer);
    }
    finish(session);
    assert_int_equal(seen.processes, seen.ended_processes);
    assert_int_equal(seen.threads, seen.ended_threads);
}

static void test_files_that_are_no_regions(void **state) {
    (void)state;
    static struct seen seen;
    struct agent_session *session = open_session(&seen);
    char path[600];
    static const char *const names[] = {"x",         "1-2.regions",          "-1-0.region",
                                        "1-.region", "99999999999-0.region", "1 -0.region"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", agent_session_folder(session), names[i]);
        close(open(path, O_RDWR | O_CREAT, 0600));
    }
    snprintf(path, sizeof path, "%s/5-0.region", agent_session_folder(session));
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/6-0.region", agent_session_folder(session));
    assert_int_equal(symlink("/dev/zero", path), 0);
    snprintf(path, sizeof path, "%s/7-0.region", agent_session_folder(session));
    close(open(path, O_RDWR | O_CREAT, 0600));
    assert_int_equal(truncate(path, 100), 0);
    drain(session);
    finish(session);
    assert_int_equal(seen.processes, 0);
}

/* The file is cut short under strobe's hands: reading on would be SIGBUS. */
static void test_a_region_that_is_cut_short(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_session(&seen);
    producer_make(&producer, session, 0);
    producer_publish(&producer);
    start_thread(&producer, 0, 0);
    put_code(&producer, 0, 0x1000, "name", 1);
    put_sample(&producer, 0, 10, 0, (const struct wire_frame[]){{0x1000, 0, WIRE_FRAME_PYTHON}}, 1, 0);
    drain(session);
    assert_int_equal(seen.sample_count, 1);
    assert_int_equal(ftruncate(producer.fd, 0), 0);
    drain(session);
    finish(session);
    assert_int_equal(seen.ended_processes, 1);
    producer_end(&producer);
}

static const struct seen_memory *seen_at(const struct seen *seen, const char *place) {
    for (size_t i = 0; i < seen->memory_count; i++)
        if (strcmp(seen->memory[i].place, place) == 0)
            return &seen->memory[i];
    fail_msg("nothing was allocated by %s", place);
    return NULL;
}

/* A process whose memory is looked at, and its main thread in that slot. */
static struct agent_session *open_memory_session(struct seen *seen, struct producer *producer, uint32_t main_slot) {
    struct agent_session *session = open_session(seen);
    producer_make(producer, session, 0);
    ((struct wire_region *)producer->region)->memory_stride_bytes = 1000;
    producer_publish(producer);
    start_thread(producer, main_slot, 0);
    producer->rings[main_slot].slot->tid = (uint32_t)getpid();
    return session;
}

/* Allocations and samples share the stack that is remembered; what one thread allocates another gives back. */
static void test_memory(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_memory_session(&seen, &producer, 0);
    put_alloc(&producer, 0,
              &(struct wire_alloc){.id = 1, .size_bytes = 8, .grown_bytes = 8, .weight_bytes = 8, .footprint_bytes = 8},
              NULL, 0);
    start_thread(&producer, 1, 0);
    put_code(&producer, 0, 0x1000, "main", 10);
    put_code(&producer, 0, 0x2000, "leaf", 20);
    const struct wire_frame both[] = {{0x2000, 4, WIRE_FRAME_PYTHON}, {0x1000, 0, WIRE_FRAME_PYTHON}};
    put_sample(&producer, 0, 1, 0, both, 2, 0);
    put_alloc(&producer, 0,
              &(struct wire_alloc){.id = 2,
                                   .size_bytes = 100,
                                   .grown_bytes = 100,
                                   .weight_bytes = 2148,
                                   .kept = 1,
                                   .weight_count = 3 * 1024,
                                   .footprint_bytes = 1000,
                                   .domain = WIRE_DOMAIN_PYTHON},
              NULL, 0);
    put_alloc(&producer, 0,
              &(struct wire_alloc){.id = 3,
                                   .size_bytes = 70,
                                   .grown_bytes = 70,
                                   .weight_bytes = 70,
                                   .kept = 1,
                                   .weight_count = 1024,
                                   .footprint_bytes = 2000},
              both, 1);
    put_sample(&producer, 0, 2, 2, NULL, 0, 0);
    drain(session);
    put_free(&producer, 1, 2, 2000);
    put_alloc(&producer, 1,
              &(struct wire_alloc){.record.flags = WIRE_SAMPLE_NO_PYTHON,
                                   .id = 4,
                                   .size_bytes = 5,
                                   .grown_bytes = 5,
                                   .weight_bytes = 5,
                                   .footprint_bytes = 1990},
              NULL, 0);
    put_free(&producer, 0, 4, 1900);
    end_thread(&producer, 1, 0);
    drain(session);
    atomic_store(&((struct wire_region *)producer.region)->peak_bytes, 2000);
    finish(session);
    assert_string_equal(seen.stacks[1], "main:10;leaf:21");
    assert_int_equal(seen_at(&seen, "STARTUP")->held.live_bytes, 8);
    const struct seen_memory *main_memory = seen_at(&seen, "main");
    assert_int_equal(main_memory->allocated.alloc_bytes, 2148);
    assert_int_equal(main_memory->allocated.python_bytes, 2148);
    assert_int_equal(main_memory->allocated.alloc_count, 3);
    assert_int_equal(main_memory->allocated.alloc_variance, 2148 * 2048 >> 20);
    assert_int_equal(main_memory->held.live_bytes, 0);
    assert_int_equal(main_memory->held.peak_bytes, 2148);
    assert_int_equal(seen_at(&seen, "main;leaf")->held.live_bytes, 70);
    assert_int_equal(seen_at(&seen, "main;leaf")->held.peak_bytes, 70);
    assert_int_equal(seen_at(&seen, "main;leaf;THREAD")->allocated.alloc_bytes, 5);
    assert_int_equal(seen_at(&seen, "main;leaf;THREAD")->held.live_bytes, 0);
    assert_int_equal(seen.peak_bytes, 2000);
    assert_int_equal(seen.highest_bytes, 2000);
    producer_end(&producer);
}

/* Since the pass began the process has grown, and told so in its header; its ring is read in the next one. */
static void test_growth_in_a_long_pass(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_memory_session(&seen, &producer, 0);
    struct wire_region *region = producer.region;
    drain(session);
    uint64_t peak_ns = clock_monotonic_ns();
    atomic_store(&region->peak_ns, peak_ns);
    atomic_store(&region->peak_bytes, 9000);
    assert_int_equal(agent_session_drain(session, peak_ns - 3 * NS_PER_S), STATUS_OK);
    put_alloc(&producer, 0,
              &(struct wire_alloc){.time_ns = peak_ns - 2,
                                   .id = 1,
                                   .size_bytes = 7000,
                                   .grown_bytes = 7000,
                                   .weight_bytes = 7000,
                                   .footprint_bytes = 7000},
              NULL, 0);
    drain(session);
    finish(session);
    assert_int_equal(seen_at(&seen, "STARTUP")->held.live_bytes, 7000);
    assert_int_equal(seen_at(&seen, "STARTUP")->held.peak_bytes, 7000);
    assert_int_equal(seen.peak_bytes, 9000);
    producer_end(&producer);
}

/* What a thread without Python allocates is charged to where it was started, also when its ring is read before that of
 * the thread that did so; and what found no room, to nobody. */
static void test_memory_without_python(void **state) {
    (void)state;
    static struct seen seen;
    struct producer producer;
    struct agent_session *session = open_memory_session(&seen, &producer, 1);
    struct wire_region *region = producer.region;
    put_code(&producer, 1, 0x1000, "starter", 10);
    put_code(&producer, 1, 0x2000, "other", 20);
    drain(session);
    const struct wire_frame starter = {0x1000, 0, WIRE_FRAME_PYTHON}, other = {0x2000, 0, WIRE_FRAME_PYTHON};
    put_start(&producer, 1, 77, &starter, 1);
    put_sample(&producer, 1, 1, 0, &other, 1, 0);
    start_thread(&producer, 0, 0);
    start_thread(&producer, 2, 0);
    producer.rings[0].slot->starter_id = 77;
    producer.rings[0].slot->starter = 1;
    producer.rings[2].slot->starter_id = 78;
    producer.rings[2].slot->starter = 5000;
    const struct wire_alloc alloc = {.record.flags = WIRE_SAMPLE_NO_PYTHON, .size_bytes = 9, .grown_bytes = 9};
    for (uint32_t index = 0; index <= 2; index += 2) {
        struct wire_alloc one = alloc;
        one.id = index + 1;
        one.weight_bytes = 100 + index;
        put_alloc(&producer, index, &one, NULL, 0);
    }
    drain(session);
    atomic_store(&region->lost_memory_bytes, 500);
    atomic_store(&region->lost_memory_records, 2);
    drain(session);
    finish(session);
    assert_int_equal(seen_at(&seen, "starter;THREAD")->allocated.alloc_bytes, 100);
    assert_int_equal(seen_at(&seen, "other;THREAD")->allocated.alloc_bytes, 102);
    assert_int_equal(seen_at(&seen, "LOST")->allocated.alloc_bytes, 500);
    producer_end(&producer);
}

static void test_the_folder(void **state) {
    (void)state;
    static struct seen seen;
    struct stat info;
    struct agent_session *session = open_session(&seen);
    char *path = strdup(agent_session_folder(session));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    agent_session_close(session);
    assert_int_equal(stat(path, &info), -1);
    free(path);
    /* One that dies leaves its folder behind, with what is in it; the next one removes it, and leaves the living alone.
     */
    int pipes[2];
    char left[256] = "";
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        session = open_session(&seen);
        struct producer producer;
        producer_make(&producer, session, 0);
        (void)!write(pipes[1], agent_session_folder(session), strlen(agent_session_folder(session)));
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(read(pipes[0], left, sizeof left - 1) > 0);
    assert_int_equal(stat(left, &info), 0);
    session = open_session(&seen);
    assert_int_equal(stat(left, &info), -1);
    struct agent_session *other = open_session(&seen);
    assert_int_equal(stat(agent_session_folder(session), &info), 0);
    agent_session_close(session);
    agent_session_close(other);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stacks_and_weights),
        cmocka_unit_test(test_code_is_told_apart),
        cmocka_unit_test(test_what_is_lost_is_a_gap),
        cmocka_unit_test(test_short_threads),
        cmocka_unit_test(test_a_program_that_execs_is_another),
        cmocka_unit_test(test_an_agent_that_is_off_says_why),
        cmocka_unit_test(test_too_few_files),
        cmocka_unit_test(test_hostile_regions),
        cmocka_unit_test(test_files_that_are_no_regions),
        cmocka_unit_test(test_a_region_that_is_cut_short),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_growth_in_a_long_pass),
        cmocka_unit_test(test_memory_without_python),
        cmocka_unit_test(test_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

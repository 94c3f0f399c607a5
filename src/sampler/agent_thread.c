#include "sampler/agent_thread.h"

#include "base/array.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* A stack is at most what one record holds, on top of what was there before. */
enum { MAX_FRAMES = 1 << 20 };

void agent_thread_init(struct agent_thread *thread, struct sampled_process *process, const struct wire_ring *ring) {
    /* Once: its other user may change it at any time. */
    const struct wire_slot slot = *ring->slot;
    *thread = (struct agent_thread){
        .sampled = {.process = process, .native_id = slot.tid, .thread_id = slot.thread_id, .interpreter = -1},
        .ring = *ring,
        .starter_id = slot.starter_id,
        .start_cpu_ns = slot.start_cpu_ns,
        .charged_cpu_ns = slot.start_cpu_ns,
        .last = {.cpu_ns = slot.start_cpu_ns, .user_us = slot.start_user_us, .system_us = slot.start_system_us},
    };
}

static void cut_raw(struct agent_thread *thread, struct agent_codes *codes, size_t count) {
    while (thread->raw_count > count)
        agent_code_drop(codes, thread->raw[--thread->raw_count].code);
}

void agent_thread_release(struct agent_thread *thread, struct agent_codes *codes) {
    cut_raw(thread, codes, 0);
    for (size_t i = 0; i < thread->codes.capacity; i++)
        if (thread->codes.entries[i].used)
            agent_code_drop(codes, (struct agent_code *)(uintptr_t)thread->codes.entries[i].value);
    map_release(&thread->codes);
    agent_allocations_release(&thread->allocations);
    free(thread->raw);
    free(thread->frames);
    free(thread->paths);
}

static struct agent_code *known_code(const struct agent_thread *thread, uint64_t address) {
    uint64_t known = 0;
    return map_get(&thread->codes, address, &known) ? (struct agent_code *)(uintptr_t)known : NULL;
}

static enum status take_code(struct agent_thread *thread, const struct agent_reading *reading,
                             const struct wire_code *record, size_t size_bytes) {
    struct agent_code *code = NULL;
    enum status status = agent_codes_take(reading->codes, record, size_bytes, reading->memory, &code);
    if (status == STATUS_DAMAGED || status == STATUS_LIMIT) {
        reading->counters->errors++;
        return STATUS_OK;
    }
    TRY(status);
    struct agent_code *before = known_code(thread, record->address);
    status = map_set(&thread->codes, record->address, (uint64_t)(uintptr_t)code);
    agent_code_drop(reading->codes, status == STATUS_OK ? before : code);
    return status;
}

static void push_raw(struct agent_thread *thread, struct agent_code *code, int32_t instruction_bytes, uint32_t kind) {
    if (code != NULL)
        agent_code_hold(code);
    thread->raw[thread->raw_count++] =
        (struct agent_frame){.code = code, .instruction_bytes = instruction_bytes, .kind = kind};
}

/* Rebuilds the stack. *common: how many of the raw frames are as before. */
static enum status take_frames(struct agent_thread *thread, const struct agent_reading *reading, size_t kept,
                               const struct wire_frame *frames, uint32_t count, size_t *common) {
    if (kept + count > MAX_FRAMES)
        return STATUS_DAMAGED;
    bool is_known = kept <= thread->gap + thread->raw_count;
    if (kept < thread->gap || !is_known) {
        /* What it leans on was lost. */
        cut_raw(thread, reading->codes, 0);
        thread->gap = kept;
        thread->count = 0;
    }
    cut_raw(thread, reading->codes, kept - thread->gap);
    *common = thread->raw_count;
    TRY(array_reserve((void **)&thread->raw, &thread->raw_capacity, thread->raw_count + count, sizeof thread->raw[0]));
    for (size_t i = count; i-- > 0;) {
        struct agent_code *code = frames[i].kind == WIRE_FRAME_PYTHON ? known_code(thread, frames[i].code) : NULL;
        push_raw(thread, code, frames[i].instruction_bytes, frames[i].kind);
    }
    reading->counters->errors += is_known ? 0 : 1;
    return STATUS_OK;
}

static struct sample_frame shown_frame(const struct agent_frame *raw) {
    struct sample_frame frame = {.instruction_bytes = -1, .kind = SAMPLE_FRAME_NATIVE};
    if (raw->kind == WIRE_FRAME_CUT)
        frame.kind = SAMPLE_FRAME_CUT;
    else if (raw->kind != WIRE_FRAME_NATIVE)
        frame.kind = raw->code != NULL ? SAMPLE_FRAME_PYTHON : SAMPLE_FRAME_UNREADABLE;
    if (frame.kind == SAMPLE_FRAME_PYTHON) {
        frame.code = &raw->code->code;
        frame.instruction_bytes = raw->instruction_bytes;
    }
    return frame;
}

/* Of the frames that are shown only so many are as they were. */
static void note_unchanged(struct agent_thread *thread, size_t unchanged) {
    thread->settled = unchanged < thread->settled ? unchanged : thread->settled;
    thread->path_count = unchanged < thread->path_count ? unchanged : thread->path_count;
}

/* Brings the frames that are shown up to date with the raw ones, of which the first `common` are as before. */
static enum status show_frames(struct agent_thread *thread, const struct agent_reading *reading, size_t common) {
    static const struct sample_frame cut = {.instruction_bytes = -1, .kind = SAMPLE_FRAME_CUT};
    size_t gap = thread->gap > 0 ? 1 : 0;
    size_t count = common > 0 ? thread->raw[common - 1].shown : gap;
    note_unchanged(thread, count < thread->count ? count : thread->count);
    TRY(array_reserve((void **)&thread->frames, &thread->capacity, count + thread->raw_count - common + 1,
                      sizeof thread->frames[0]));
    if (gap > 0)
        thread->frames[0] = cut;
    for (size_t i = common; i < thread->raw_count; i++) {
        struct agent_frame *raw = &thread->raw[i];
        /* The outermost one is how the program began. */
        if (raw->kind != WIRE_FRAME_NATIVE || (reading->native_boundaries && count > 0))
            thread->frames[count++] = shown_frame(raw);
        raw->shown = count;
    }
    thread->count = count;
    return STATUS_OK;
}

enum status agent_thread_take_stack(struct agent_thread *thread, const struct agent_reading *reading, uint32_t kept,
                                    const struct wire_frame *frames, uint32_t count) {
    size_t common = 0;
    TRY(take_frames(thread, reading, kept, frames, count, &common));
    return show_frames(thread, reading, common);
}

/* The same parts of another sum. */
static void scale_parts(struct sample_cpu *cpu, uint64_t sum_ns) {
    uint64_t before_ns = cpu->python_ns + cpu->native_ns + cpu->kernel_ns;
    if (before_ns == sum_ns)
        return;
    if (before_ns == 0) {
        cpu->python_ns = sum_ns;
        return;
    }
    double factor = (double)sum_ns / (double)before_ns;
    uint64_t native_ns = (uint64_t)((double)cpu->native_ns * factor);
    uint64_t kernel_ns = (uint64_t)((double)cpu->kernel_ns * factor);
    cpu->native_ns = native_ns < sum_ns ? native_ns : sum_ns;
    cpu->kernel_ns = kernel_ns < sum_ns - cpu->native_ns ? kernel_ns : sum_ns - cpu->native_ns;
    cpu->python_ns = sum_ns - cpu->native_ns - cpu->kernel_ns;
}

/* Nothing says what the time was spent on but the kernel's account of its own part. */
static void split_at_end(const struct wire_sample *before, const struct wire_sample *sample, uint64_t weight_ns,
                         struct sample_cpu *cpu) {
    double user_us = (double)(sample->user_us - before->user_us);
    double system_us = (double)(sample->system_us - before->system_us);
    double part = user_us + system_us > 0 ? system_us / (user_us + system_us) : 0;
    uint64_t kernel_ns = (uint64_t)((double)weight_ns * part);
    cpu->kernel_ns = kernel_ns < weight_ns ? kernel_ns : weight_ns;
    cpu->python_ns = weight_ns - cpu->kernel_ns;
}

static void split_cpu(struct agent_thread *thread, const struct agent_reading *reading,
                      const struct wire_sample *sample, const uint64_t *words, bool in_python, uint64_t weight_ns,
                      struct sample_cpu *cpu) {
    const struct wire_sample *before = &thread->last;
    *cpu = (struct sample_cpu){0};
    if ((sample->record.flags & WIRE_SAMPLE_AT_END) != 0)
        split_at_end(before, sample, weight_ns, cpu);
    else if (reading->split != NULL)
        cpu_split_take(reading->split, before, sample, words, in_python, weight_ns, cpu);
    else if (sample->system_us - before->system_us > sample->user_us - before->user_us)
        cpu->kernel_ns = weight_ns;
    else if (!in_python)
        cpu->native_ns = weight_ns;
    scale_parts(cpu, weight_ns);
}

static enum status hand_on(struct agent_thread *thread, const struct agent_reading *reading, uint64_t time_ns,
                           const struct sample_cpu *cpu) {
    bool attached = thread->has_sample && !reading->free_threaded &&
                    (thread->last.record.flags & (WIRE_SAMPLE_NO_PYTHON | WIRE_SAMPLE_DETACHED)) == 0;
    time_ns = time_ns > reading->from_ns ? time_ns : reading->from_ns;
    struct sample sample = {
        .thread = &thread->sampled,
        .time_ns = time_ns < reading->now_ns ? time_ns : reading->now_ns,
        .weight_ns = cpu->python_ns + cpu->native_ns + cpu->kernel_ns,
        .clock = SAMPLE_CLOCK_CPU,
        .cpu = *cpu,
        .state = THREAD_RUNNING,
        .gil = attached ? SAMPLE_GIL_HELD : SAMPLE_GIL_NONE,
        .frames = thread->frames,
        .count = thread->count,
        .unchanged = thread->settled,
    };
    thread->settled = thread->count;
    reading->counters->taken++;
    return reading->sink->sample(reading->sink, &sample);
}

/* More than all the time there was, and a clock's coarseness, is no CPU time. */
static uint64_t charge(struct agent_thread *thread, const struct agent_reading *reading, uint64_t cpu_ns) {
    uint64_t most_ns = thread->start_cpu_ns + (reading->now_ns - reading->from_ns) + NS_PER_S;
    cpu_ns = cpu_ns < most_ns ? cpu_ns : most_ns;
    uint64_t weight_ns = cpu_ns > thread->charged_cpu_ns ? cpu_ns - thread->charged_cpu_ns : 0;
    thread->charged_cpu_ns += weight_ns;
    reading->looks->cpu_ns += weight_ns;
    thread->sampled.cpu_ns = thread->charged_cpu_ns - thread->start_cpu_ns;
    return weight_ns;
}

/* The first stroke of a thread's clock stands for a whole stride: for its own time since it began, and for that of
 * threads that were so short that no stroke met them. So the sum is exact, and a place where many short threads work
 * gets its share by the chance of meeting one there. */
static uint64_t adopt_unseen(const struct agent_reading *reading, uint64_t own_ns) {
    uint64_t room_ns = own_ns < reading->stride_ns ? reading->stride_ns - own_ns : 0;
    uint64_t adopted_ns = *reading->unseen_ns < room_ns ? *reading->unseen_ns : room_ns;
    *reading->unseen_ns -= adopted_ns;
    return adopted_ns;
}

/* In a system call a thread is not looked at, and all of it is the call's. Of what the first look stands for only a
 * part is the thread's own. */
static void note_look(const struct agent_thread *thread, const struct agent_reading *reading,
                      const struct sample_cpu *cpu) {
    enum { CALL_SHARE = 8 };
    uint64_t own_ns = cpu->python_ns + cpu->native_ns, all_ns = own_ns + cpu->kernel_ns;
    if (thread->has_sample && own_ns >= all_ns / CALL_SHARE && all_ns > reading->looks->longest_ns)
        reading->looks->longest_ns = all_ns;
}

static enum status take_sample(struct agent_thread *thread, const struct agent_reading *reading,
                               const struct wire_sample *sample, size_t size_bytes) {
    uint64_t behind_bytes =
        (uint64_t)sample->frame_count * sizeof(struct wire_frame) + (uint64_t)sample->stack_words * sizeof(uint64_t);
    if (size_bytes < sizeof *sample || behind_bytes > size_bytes - sizeof *sample)
        return STATUS_DAMAGED;
    /* The next one stands for this one's time too: what is dropped is a look, not time. */
    if ((sample->record.flags & WIRE_SAMPLE_TORN) != 0)
        return STATUS_OK;
    const struct wire_frame *frames = (const struct wire_frame *)(sample + 1);
    const uint64_t *words = (const uint64_t *)(const void *)(frames + sample->frame_count);
    struct sample_cpu cpu;
    TRY(agent_thread_take_stack(thread, reading, sample->kept, frames, sample->frame_count));
    uint64_t weight_ns = charge(thread, reading, sample->cpu_ns);
    /* What was not seen by chance is made up for by chance. */
    if (!thread->has_sample && (sample->record.flags & WIRE_SAMPLE_AT_END) == 0)
        weight_ns += adopt_unseen(reading, weight_ns);
    bool in_python = thread->count > 0 && (sample->record.flags & WIRE_SAMPLE_NO_PYTHON) == 0;
    split_cpu(thread, reading, sample, words, in_python, weight_ns, &cpu);
    note_look(thread, reading, &cpu);
    thread->last = *sample;
    thread->has_sample = true;
    thread->last_cpu = cpu;
    thread->last_cpu.function = thread->last_cpu.library = NULL;
    return hand_on(thread, reading, sample->time_ns, &cpu);
}

/* `record` is a copy of `size_bytes` bytes. */
static enum status take_record(struct agent_thread *thread, const struct agent_reading *reading,
                               const struct wire_record *record, size_t size_bytes) {
    enum status status = STATUS_OK;
    if (record->type == WIRE_CODE)
        status = take_code(thread, reading, (const struct wire_code *)(const void *)record, size_bytes);
    else if (record->type == WIRE_SAMPLE)
        status = size_bytes >= sizeof(struct wire_sample)
                     ? take_sample(thread, reading, (const struct wire_sample *)(const void *)record, size_bytes)
                     : STATUS_DAMAGED;
    else if (record->type >= WIRE_ALLOC && record->type <= WIRE_COUNTS)
        status = agent_memory_take(reading->allocated, thread, reading, record, size_bytes);
    if (status != STATUS_DAMAGED)
        return status;
    reading->counters->errors++;
    return STATUS_OK;
}

static void take_counts(struct agent_thread *thread, const struct agent_reading *reading) {
    uint64_t lost = atomic_load_explicit(&thread->ring.slot->lost_records, memory_order_relaxed);
    uint64_t torn = atomic_load_explicit(&thread->ring.slot->torn, memory_order_relaxed);
    reading->counters->missed += lost > thread->lost_seen ? lost - thread->lost_seen : 0;
    reading->counters->inconsistent += torn > thread->torn_seen ? torn - thread->torn_seen : 0;
    thread->lost_seen = lost;
    thread->torn_seen = torn;
}

enum status agent_thread_drain(struct agent_thread *thread, const struct agent_reading *reading) {
    enum { RELEASE_BYTES = WIRE_RING_BYTES / 16 };
    uint64_t written = wire_ring_written(&thread->ring), released = thread->position;
    enum status status = STATUS_OK;
    bool damaged = false;
    take_counts(thread, reading);
    if (written == thread->position)
        return STATUS_OK;
    while (status == STATUS_OK) {
        uint64_t before = thread->position;
        const struct wire_record *record = wire_ring_next(&thread->ring, &thread->position, written, &damaged);
        if (record == NULL)
            break;
        /* Padding may have been skipped; the record ends where the position is now. */
        size_t most = (size_t)(thread->position - before);
        most = most < WIRE_RING_BYTES ? most : WIRE_RING_BYTES;
        size_t offset = (size_t)((const uint8_t *)record - thread->ring.bytes);
        size_t size_bytes = (size_t)((thread->position - offset) % wire_ring_bytes(thread->ring.size_bytes));
        size_bytes = size_bytes == 0 || size_bytes > most ? most : size_bytes;
        memcpy(reading->scratch, record, size_bytes);
        status = take_record(thread, reading, reading->scratch, size_bytes);
        /* What one record says may take long to find out (a library's symbols), and the thread goes on writing. */
        if (thread->position - released >= RELEASE_BYTES) {
            wire_ring_release(&thread->ring, thread->position);
            released = thread->position;
        }
    }
    if (damaged) {
        reading->counters->errors++;
        thread->position = written;
    }
    wire_ring_release(&thread->ring, thread->position);
    return status;
}

enum status agent_thread_finish(struct agent_thread *thread, const struct agent_reading *reading, uint64_t end_ns,
                                uint64_t end_cpu_ns) {
    uint64_t weight_ns = charge(thread, reading, end_cpu_ns);
    if (!thread->has_sample)
        *reading->unseen_ns += weight_ns;
    if (weight_ns == 0 || !thread->has_sample)
        return STATUS_OK;
    struct sample_cpu cpu = thread->last_cpu;
    scale_parts(&cpu, weight_ns);
    return hand_on(thread, reading, end_ns, &cpu);
}

enum status agent_thread_take_unseen(struct agent_thread *thread, const struct agent_reading *reading) {
    struct sample_cpu cpu = {.python_ns = *reading->unseen_ns};
    *reading->unseen_ns = 0;
    if (cpu.python_ns == 0)
        return STATUS_OK;
    thread->count = thread->settled = 0;
    return hand_on(thread, reading, reading->now_ns, &cpu);
}

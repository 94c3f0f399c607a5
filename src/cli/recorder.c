#include "cli/recorder.h"

#include "cli/cli.h"
#include "cli/program.h"
#include "cli/recorder_state.h"

#include "base/array.h"
#include "base/clock.h"
#include "cpython/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Frames without code have keys that no serial and instruction make. */
static const uint64_t OTHER_KEYS = UINT64_MAX - 100;

enum { MAX_PATH_BYTES = 4096, COUNTERS_SHARE = 64 };

static struct recorder *recorder_of(struct sample_sink *sink) {
    return (struct recorder *)sink;
}

static struct capture_text text_of(const char *text) {
    return (struct capture_text){text, text != NULL ? strlen(text) : 0};
}

/* Once: its children will be of the same. */
static void warn_of_version(struct recorder *recorder, const struct sampled_process *process) {
    if (recorder->warned_of_version || (process->version >> 16 & 0xff) <= LAYOUT_NEWEST_MINOR)
        return;
    recorder->warned_of_version = true;
    progress_clear(&recorder->progress);
    cli_warn_of_version(process->pid);
}

static enum status add_process(struct recorder *recorder, const struct sampled_process *process) {
    warn_of_version(recorder, process);
    size_t count = 0;
    while (process->command != NULL && process->command[count] != NULL)
        count++;
    struct capture_text *command = calloc(count + 1, sizeof command[0]);
    if (command == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        command[i] = text_of(process->command[i]);
    struct capture_text libraries[2];
    char launcher[MAX_PATH_BYTES];
    size_t library_count = 0;
    if (process->library != NULL)
        libraries[library_count++] = text_of(process->library);
    if (program_find_launcher(process->process, process->began_in, process->command, launcher, sizeof launcher) ==
        STATUS_OK)
        libraries[library_count++] = text_of(launcher);
    struct capture_process record = {
        .process = process->number,
        .pid = process->pid,
        .parent_pid = process->parent_pid,
        .python_version = process->version,
        .free_threaded = process->free_threaded,
        .mode = recorder->options.mode,
        .origin = recorder->options.origin,
        .rate_millihertz = (uint64_t)(recorder->options.rate_hz * 1000),
        .start_unix_ns = process->start_unix_ns,
        .start_ns = process->start_ns,
        .command = command,
        .command_count = count,
        .libraries = libraries,
        .library_count = library_count,
    };
    enum status status = capture_add_process(recorder->writer, &record);
    free(command);
    return status;
}

static enum status process_started(struct sample_sink *sink, struct sampled_process *process) {
    struct recorder *recorder = recorder_of(sink);
    if (process->number >= recorder->process_count) {
        size_t count = (size_t)process->number + 1;
        struct recorded_process *grown = realloc(recorder->processes, count * sizeof grown[0]);
        if (grown == NULL)
            return STATUS_FAILED;
        memset(grown + recorder->process_count, 0, (count - recorder->process_count) * sizeof grown[0]);
        recorder->processes = grown;
        recorder->process_count = count;
    }
    if (recorder->known_count > process->number && recorder->options.announcement != NULL)
        (void)snprintf(recorder->news, sizeof recorder->news, "process %d runs Python %u.%u now", (int)process->pid,
                       process->version >> 24, process->version >> 16 & 0xff);
    if (recorder->known_count <= process->number) {
        recorder->known_count = process->number + 1;
        recorder->progress.processes++;
    }
    recorder->processes[process->number].sampled = process;
    return add_process(recorder, process);
}

static enum status process_described(struct sample_sink *sink, struct sampled_process *process) {
    return add_process(recorder_of(sink), process);
}

static enum status write_counters(struct recorder *recorder, uint32_t number, const struct sample_counters *counters) {
    struct capture_counters record = {counters->taken, counters->missed, counters->inconsistent, counters->errors};
    recorder->processes[number].counted = *counters;
    return capture_write_counters(recorder->writer, number, &record);
}

/* Before the end, too, as strobe may not live to see it; the longer it takes the rarer. */
static enum status tell_counters(struct recorder *recorder, uint64_t now_ns) {
    if (recorder->first_idle_ns == 0)
        recorder->first_idle_ns = recorder->counted_ns = now_ns;
    uint64_t period_ns = (now_ns - recorder->first_idle_ns) / COUNTERS_SHARE;
    if (now_ns - recorder->counted_ns < (period_ns > NS_PER_S ? period_ns : NS_PER_S))
        return STATUS_OK;
    recorder->counted_ns = now_ns;
    for (uint32_t i = 0; i < recorder->process_count; i++) {
        const struct recorded_process *process = &recorder->processes[i];
        const struct sample_counters *counters = process->sampled != NULL ? process->sampled->counters : NULL;
        if (counters != NULL && memcmp(counters, &process->counted, sizeof *counters) != 0)
            TRY(write_counters(recorder, i, counters));
    }
    return STATUS_OK;
}

static enum status process_ended(struct sample_sink *sink, struct sampled_process *process,
                                 const struct sample_counters *counters) {
    struct recorder *recorder = recorder_of(sink);
    recorder->processes[process->number].sampled = NULL;
    map_release(&recorder->processes[process->number].frames);
    recorded_sites_release(&recorder->processes[process->number].sites);
    recorder->progress.processes--;
    recorder->unwatched += counters->unwatched;
    TRY(write_counters(recorder, process->number, counters));
    uint64_t end_ns = process->end_ns != 0 ? process->end_ns : clock_monotonic_ns();
    return capture_end_process(recorder->writer, process->number, end_ns,
                               process->has_status ? process->wait_status : -1);
}

static struct capture_thread thread_record(const struct sampled_thread *thread) {
    return (struct capture_thread){thread->process->number, thread->native_id, thread->thread_id, thread->interpreter,
                                   text_of(thread->name)};
}

static enum status thread_started(struct sample_sink *sink, struct sampled_thread *thread) {
    struct recorded_thread *recorded = calloc(1, sizeof *recorded);
    if (recorded == NULL)
        return STATUS_FAILED;
    thread->receiver = recorded;
    recorder_of(sink)->progress.threads++;
    struct capture_thread record = thread_record(thread);
    return capture_add_thread(recorder_of(sink)->writer, &record, &recorded->id);
}

static enum status thread_renamed(struct sample_sink *sink, struct sampled_thread *thread) {
    struct recorded_thread *recorded = thread->receiver;
    struct capture_thread record = thread_record(thread);
    return capture_update_thread(recorder_of(sink)->writer, recorded->id, &record);
}

static enum status thread_ended(struct sample_sink *sink, struct sampled_thread *thread) {
    struct recorder *recorder = recorder_of(sink);
    struct recorded_thread *recorded = thread->receiver;
    enum status status = capture_write_thread_cpu(recorder->writer, recorded->id, thread->cpu_ns);
    if (status == STATUS_OK)
        status = capture_end_thread(recorder->writer, recorded->id, clock_monotonic_ns());
    for (size_t i = 0; i < VIEWS; i++)
        free(recorded->stacks[i].ids);
    free(recorded);
    thread->receiver = NULL;
    recorder->progress.threads--;
    return status;
}

static enum status intern_text(struct recorder *recorder, const char *text, uint32_t *id) {
    *id = 0;
    return text == NULL ? STATUS_OK : capture_intern_string(recorder->writer, text, strlen(text), id);
}

/* Before 3.9 a script is called as on the command line, often relative to where it was started. */
static enum status intern_file(struct recorder *recorder, const struct sampled_process *sampled, const char *name,
                               uint32_t *id) {
    char absolute[MAX_PATH_BYTES];
    if (name != NULL && name[0] != '/' && name[0] != '<' && name[0] != '\0' &&
        process_resolve_path(sampled->process, sampled->began_in, name, absolute, sizeof absolute) == STATUS_OK)
        name = absolute;
    return intern_text(recorder, name, id);
}

static enum status intern_python_frame(struct recorder *recorder, const struct sampled_process *sampled,
                                       const struct sample_frame *frame, uint32_t *id) {
    const struct code *code = frame->code;
    struct source_position position = {code->lines.first_line, -1, -1, -1};
    if (frame->instruction_bytes >= 0)
        (void)linetable_lookup(&code->lines, (uint32_t)frame->instruction_bytes, &position);
    struct capture_frame record = {.kind = CAPTURE_FRAME_PYTHON,
                                   .line = position.line,
                                   .end_line = position.end_line,
                                   .column = position.column,
                                   .end_column = position.end_column,
                                   .first_line = code->lines.first_line};
    TRY(intern_text(recorder, code->name, &record.function));
    TRY(intern_text(recorder, code->qualname, &record.qualname));
    TRY(intern_file(recorder, sampled, code->filename, &record.file));
    return capture_intern_frame(recorder->writer, &record, id);
}

/* A frame that has no line. */
static struct capture_frame bare_frame(enum capture_frame_kind kind) {
    return (struct capture_frame){
        .kind = kind, .line = -1, .end_line = -1, .column = -1, .end_column = -1, .first_line = -1};
}

static enum status intern_other_frame(struct recorder *recorder, enum sample_frame_kind kind, uint32_t *id) {
    static const struct {
        enum capture_frame_kind kind;
        const char *name;
    } others[] = {
        [SAMPLE_FRAME_NATIVE] = {CAPTURE_FRAME_NATIVE, "<native>"},
        [SAMPLE_FRAME_GC] = {CAPTURE_FRAME_GC, "<GC>"},
        [SAMPLE_FRAME_UNREADABLE] = {CAPTURE_FRAME_UNREADABLE, "<unreadable>"},
        [SAMPLE_FRAME_CUT] = {CAPTURE_FRAME_CUT, "<cut>"},
        [SAMPLE_FRAME_NATIVE_THREAD] = {CAPTURE_FRAME_NATIVE, "<native thread>"},
        [SAMPLE_FRAME_STARTUP] = {CAPTURE_FRAME_NATIVE, "<startup>"},
        [SAMPLE_FRAME_SHUTDOWN] = {CAPTURE_FRAME_NATIVE, "<shutdown>"},
        [SAMPLE_FRAME_LOST] = {CAPTURE_FRAME_UNREADABLE, "<lost>"},
    };
    struct capture_frame record = bare_frame(others[kind].kind);
    TRY(intern_text(recorder, others[kind].name, &record.function));
    /* What stands alone is charged to itself, as a file of its own. */
    if (kind == SAMPLE_FRAME_STARTUP || kind == SAMPLE_FRAME_SHUTDOWN || kind == SAMPLE_FRAME_LOST)
        record.file = record.function;
    return capture_intern_frame(recorder->writer, &record, id);
}

static uint64_t key_of(const struct sample_frame *frame) {
    if (frame->kind != SAMPLE_FRAME_PYTHON)
        return OTHER_KEYS + (uint64_t)frame->kind;
    return (uint64_t)frame->code->serial << 32 | (uint32_t)(frame->instruction_bytes + 1);
}

enum status recorder_frame_id(struct recorder *recorder, const struct sampled_process *sampled,
                              const struct sample_frame *frame, uint32_t *id) {
    struct recorded_process *process = &recorder->processes[sampled->number];
    uint64_t key = key_of(frame), known = 0;
    if (map_get(&process->frames, key, &known)) {
        *id = (uint32_t)known;
        return STATUS_OK;
    }
    if (frame->kind == SAMPLE_FRAME_PYTHON)
        TRY(intern_python_frame(recorder, sampled, frame, id));
    else
        TRY(intern_other_frame(recorder, frame->kind, id));
    return map_set(&process->frames, key, *id);
}

void recorder_follow_epoch(struct recorder *recorder) {
    uint32_t epoch = capture_writer_epoch(recorder->writer);
    if (epoch != recorder->epoch)
        for (size_t i = 0; i < recorder->process_count; i++)
            map_clear(&recorder->processes[i].frames);
    recorder->epoch = epoch;
}

/* A new epoch of the capture voids all ids. */
static void follow_epoch(struct recorder *recorder, struct recorded_stack *stack) {
    recorder_follow_epoch(recorder);
    if (stack->epoch != recorder->epoch)
        stack->valid = 0;
    stack->epoch = recorder->epoch;
}

/* The id of the sample's stack: from where it differs from the last one on, frame by frame. */
static enum status stack_id(struct recorder *recorder, struct recorded_stack *stack, const struct sample *sample,
                            uint32_t *id) {
    const struct sampled_process *process = sample->thread->process;
    size_t from = sample->unchanged < stack->valid ? sample->unchanged : stack->valid;
    TRY(array_reserve((void **)&stack->ids, &stack->capacity, sample->count, sizeof stack->ids[0]));
    *id = from > 0 ? stack->ids[from - 1] : 0;
    for (size_t i = from; i < sample->count; i++) {
        uint32_t frame = 0, parent = *id;
        bool lasting = !sample->passing || i < sample->unchanged;
        enum status status = recorder_frame_id(recorder, process, &sample->frames[i], &frame);
        if (status == STATUS_OK)
            status = capture_intern_stack(recorder->writer, parent, frame, id);
        if (lasting)
            stack->valid = i;
        /* More than an epoch holds: the sample counts with as much of its stack as there is room for. */
        if (status == STATUS_LIMIT)
            *id = parent;
        if (status == STATUS_LIMIT)
            break;
        TRY(status);
        if (lasting) {
            stack->ids[i] = *id;
            stack->valid = i + 1;
        }
    }
    return STATUS_OK;
}

static bool has_native_frame(const struct sample_cpu *cpu) {
    return cpu->native_ns > 0 && (cpu->function != NULL || cpu->library != NULL);
}

/* The native function, where one is known, called by the innermost frame. */
static enum status add_native_frame(struct recorder *recorder, const struct sample_cpu *cpu, uint32_t *stack) {
    if (!has_native_frame(cpu))
        return STATUS_OK;
    struct capture_frame record = bare_frame(CAPTURE_FRAME_NATIVE);
    uint32_t frame = 0, parent = *stack;
    enum status status = intern_text(recorder, cpu->function != NULL ? cpu->function : "<native>", &record.function);
    if (status == STATUS_OK)
        status = intern_text(recorder, cpu->library, &record.file);
    if (status == STATUS_OK)
        status = capture_intern_frame(recorder->writer, &record, &frame);
    if (status == STATUS_OK)
        status = capture_intern_stack(recorder->writer, parent, frame, stack);
    if (status != STATUS_OK)
        *stack = parent;
    return status == STATUS_LIMIT ? STATUS_OK : status;
}

/* Once there is a sample; or, when there is none to be had (of a process that does not run, by its CPU
 * time), soon. */
static void announce(struct recorder *recorder) {
    if (recorder->news[0] != '\0') {
        progress_clear(&recorder->progress);
        cli_say("%s", recorder->news);
    }
    recorder->news[0] = '\0';
}

/* What a sample's weight is made of. A part that could have been and was not is a true 0, which the first event of a
 * process says of all. */
static enum status write_parts(struct recorder *recorder, const struct sample *sample, uint32_t thread,
                               uint32_t stack) {
    const struct capture_value cpu[] = {
        {CAPTURE_MEASURE_CPU_PYTHON_NS, sample->cpu.python_ns},
        {CAPTURE_MEASURE_CPU_NATIVE_NS, sample->cpu.native_ns},
        {CAPTURE_MEASURE_CPU_KERNEL_NS, sample->cpu.kernel_ns},
    };
    const struct capture_value wait[] = {
        {CAPTURE_MEASURE_WAIT_NS, sample->weight_ns},
        {CAPTURE_MEASURE_GIL_WAIT_NS, sample->gil == SAMPLE_GIL_WAITING ? sample->weight_ns : 0},
    };
    bool *told = recorder->processes[sample->thread->process->number].told;
    bool is_wait = sample->clock == SAMPLE_CLOCK_WAIT;
    const struct capture_value *parts = is_wait ? wait : cpu;
    size_t count = is_wait ? sizeof wait / sizeof wait[0] : sizeof cpu / sizeof cpu[0];
    struct capture_value values[3];
    struct capture_event event = {.thread = thread, .stack = stack, .time_ns = sample->time_ns, .values = values};
    for (size_t i = 0; i < count; i++)
        if (parts[i].amount > 0 || !told[parts[i].measure]) {
            told[parts[i].measure] = true;
            values[event.value_count++] = parts[i];
        }
    return event.value_count > 0 ? capture_write_event(recorder->writer, &event) : STATUS_OK;
}

static enum status write_sample(struct recorder *recorder, const struct sample *sample, uint32_t thread,
                                uint32_t stack) {
    static const enum capture_gil gil[] = {[SAMPLE_GIL_NONE] = CAPTURE_GIL_NONE,
                                           [SAMPLE_GIL_HELD] = CAPTURE_GIL_HELD,
                                           [SAMPLE_GIL_WAITING] = CAPTURE_GIL_WAITING};
    struct capture_sample record = {.thread = thread,
                                    .stack = stack,
                                    .time_ns = sample->time_ns,
                                    .weight_ns = sample->weight_ns,
                                    .run = sample->state == THREAD_RUNNING ? CAPTURE_RUNNING : CAPTURE_IDLE,
                                    .gil = gil[sample->gil],
                                    .collecting = sample->collecting};
    return capture_write_sample(recorder->writer, &record);
}

/* The id of what the sample is charged to. */
static enum status charged_stack(struct recorder *recorder, struct recorded_stack *stack, const struct sample *sample,
                                 uint32_t *id) {
    follow_epoch(recorder, stack);
    TRY(stack_id(recorder, stack, sample, id));
    return sample->clock == SAMPLE_CLOCK_CPU ? add_native_frame(recorder, &sample->cpu, id) : STATUS_OK;
}

static enum status record(struct recorder *recorder, const struct sample *sample) {
    struct recorded_thread *thread = sample->thread->receiver;
    struct recorded_stack *stack = &thread->stacks[sample->clock == SAMPLE_CLOCK_CPU ? FROM_INSIDE : FROM_OUTSIDE];
    uint32_t id = 0;
    TRY(charged_stack(recorder, stack, sample, &id));
    if (sample->clock == SAMPLE_CLOCK_CPU || sample->clock == SAMPLE_CLOCK_WAIT)
        TRY(write_parts(recorder, sample, thread->id, id));
    if (sample->clock == SAMPLE_CLOCK_WAIT)
        return STATUS_OK;
    /* The event may have ended the epoch, and the stack's id with it. */
    if (capture_writer_epoch(recorder->writer) != recorder->epoch)
        TRY(charged_stack(recorder, stack, sample, &id));
    return write_sample(recorder, sample, thread->id, id);
}

/* What was not native of a sample that was native, too, stands for the line, not for the native function. */
static enum status record_in_parts(struct recorder *recorder, const struct sample *sample) {
    struct sample native = *sample, rest = *sample;
    native.cpu.python_ns = native.cpu.kernel_ns = 0;
    native.weight_ns = native.cpu.native_ns;
    rest.cpu.native_ns = 0;
    rest.weight_ns = rest.cpu.python_ns + rest.cpu.kernel_ns;
    rest.unchanged = rest.count;
    TRY(record(recorder, &native));
    return record(recorder, &rest);
}

static enum status take_sample(struct sample_sink *sink, const struct sample *sample) {
    struct recorder *recorder = recorder_of(sink);
    bool is_mixed = sample->clock == SAMPLE_CLOCK_CPU && has_native_frame(&sample->cpu) &&
                    sample->cpu.python_ns + sample->cpu.kernel_ns > 0;
    announce(recorder);
    recorder->progress.samples++;
    return is_mixed ? record_in_parts(recorder, sample) : record(recorder, sample);
}

static enum status idle(struct sample_sink *sink, uint64_t now_ns) {
    struct recorder *recorder = recorder_of(sink);
    if (recorder->idle_count++ > 0)
        announce(recorder);
    progress_show(&recorder->progress, now_ns);
    TRY(tell_counters(recorder, now_ns));
    return capture_writer_flush(recorder_of(sink)->writer, now_ns);
}

static enum status code_forgotten(struct sample_sink *sink, struct sampled_process *process) {
    map_clear(&recorder_of(sink)->processes[process->number].frames);
    return STATUS_OK;
}

struct recorder *recorder_new(struct capture_writer *writer, const struct recorder_options *options) {
    struct recorder *recorder = calloc(1, sizeof *recorder);
    if (recorder == NULL)
        return NULL;
    recorder->sink = (struct sample_sink){
        .process_started = process_started,
        .process_ended = process_ended,
        .thread_started = thread_started,
        .thread_renamed = thread_renamed,
        .thread_ended = thread_ended,
        .sample = take_sample,
        .idle = idle,
        .code_forgotten = code_forgotten,
        .allocations = recorder_take_allocations,
        .memory = recorder_take_memory,
        .process_described = process_described,
    };
    recorder->writer = writer;
    recorder->options = *options;
    progress_start(&recorder->progress, options->progress);
    if (options->announcement != NULL)
        (void)snprintf(recorder->news, sizeof recorder->news, "%s", options->announcement);
    recorder->epoch = capture_writer_epoch(writer);
    return recorder;
}

struct sample_sink *recorder_sink(struct recorder *recorder) {
    return &recorder->sink;
}

static void warn_of_unwatched(const struct recorder *recorder) {
    if (recorder->unwatched > 0)
        cli_say("too many open files: when %" PRIu64 " %s ran and when waited is not known, or not all of it; raise "
                "'ulimit -Hn' (a thread takes 3 files)",
                recorder->unwatched, recorder->unwatched == 1 ? "thread" : "threads");
}

void recorder_free(struct recorder *recorder) {
    if (recorder == NULL)
        return;
    progress_clear(&recorder->progress);
    warn_of_unwatched(recorder);
    for (size_t i = 0; i < recorder->process_count; i++) {
        map_release(&recorder->processes[i].frames);
        recorded_sites_release(&recorder->processes[i].sites);
    }
    free(recorder->processes);
    free(recorder);
}

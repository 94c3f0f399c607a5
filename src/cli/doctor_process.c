#include "cli/doctor.h"
#include "cpython/runtime.h"
#include "sampler/look.h"

#include <stdio.h>

enum { FIRST_WITH_COLUMNS = 11, FIRST_WITH_TASKS = 14 };

static void find_version(const struct look *look) {
    char version[24];
    int minor = (int)(look->version >> 16 & 0xff);
    if (look->version == 0) {
        doctor_find(FINDING_NOTE, "its interpreter is starting up: it cannot say its version yet");
        return;
    }
    runtime_format_version(look->version, version);
    if (look->newer_than_known)
        doctor_find(FINDING_NOTE, "it runs CPython %s%s, newer than strobe knows; it is read by its own description",
                    version, look->free_threaded ? ", free-threaded" : "");
    else
        doctor_find(FINDING_WORKS, "it runs CPython %s%s", version, look->free_threaded ? ", free-threaded" : "");
    if (minor < FIRST_WITH_COLUMNS)
        doctor_find(FINDING_NOTE, "columns and qualified names are known from 3.%d on only", FIRST_WITH_COLUMNS);
    if (minor < FIRST_WITH_TASKS)
        doctor_find(FINDING_NOTE, "asyncio's tasks (dump --async) are known from 3.%d on only", FIRST_WITH_TASKS);
}

static void find_stacks(const struct look *look) {
    size_t python = 0, consistent = 0, frames = 0;
    for (size_t i = 0; i < look->thread_count; i++) {
        const struct look_thread *thread = &look->threads[i];
        python += thread->has_python;
        consistent += thread->has_python && thread->consistent;
        frames += thread->frame_count;
    }
    if (consistent == python)
        doctor_find(FINDING_WORKS, "Python threads: %zu; frames: %zu; all were read", python, frames);
    else
        doctor_find(FINDING_NOTE, "Python threads: %zu; of these, %zu changed at each attempt to read them", python,
                    python - consistent);
    if (look->thread_count > python)
        doctor_find(FINDING_NOTE, "threads that Python does not know: %zu", look->thread_count - python);
}

static void find_surroundings(const struct process *process) {
    pid_t tracer = process_tracer(process);
    if (process_own_pid(process) != process_pid(process))
        doctor_find(FINDING_NOTE, "it lives in a container, where its id is %d", (int)process_own_pid(process));
    if (tracer != 0)
        doctor_find(FINDING_MISSING,
                    "it cannot be stopped for a look (--blocking): process %d, a debugger perhaps, "
                    "traces it",
                    (int)tracer);
}

static void print_command(struct process *process) {
    char line[120] = "";
    size_t used = 0;
    char **command = process_command(process);
    for (size_t i = 0; command[i] != NULL && used < sizeof line; i++) {
        int length = snprintf(line + used, sizeof line - used, "%s%s", i > 0 ? " " : "", command[i]);
        used += length > 0 ? (size_t)length : 0;
    }
    for (size_t i = 0; line[i] != '\0'; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    doctor_section("Process %d: %s%s", (int)process_pid(process), line, used >= sizeof line ? "…" : "");
}

enum status doctor_process(pid_t pid, struct error *error) {
    struct process *process = NULL;
    struct look look = {0};
    const struct look_options options = {0};
    TRY(process_open(pid, &process, error));
    enum status status = look_take(process, &options, &look, error);
    if (status == STATUS_OK) {
        print_command(process);
        find_version(&look);
        find_stacks(&look);
        find_surroundings(process);
    }
    look_free(&look);
    process_free(process);
    return status;
}

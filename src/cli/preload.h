/* Getting the agent into a command: what is in the way, and the environment that loads it. */
#ifndef STROBE_CLI_PRELOAD_H
#define STROBE_CLI_PRELOAD_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PRELOAD_OBSTACLE_BYTES = 160 };

/* Whether something keeps the agent from being loaded into the command, as far as its file tells; `text` says what, to
 * go on after the command's name. What cannot be found or read is left to fail by itself. */
bool preload_find_obstacle(const char *command, char text[PRELOAD_OBSTACLE_BYTES]);

/* The agent's library, beside this program in a build folder, else where it is installed. */
enum status preload_find_agent(char *path, size_t capacity, struct error *error) MUST_USE;

/* What a command's environment is to have beyond this program's own. */
struct preload {
    const char *agent;
    const char *folder;
    uint64_t period_ns;
    bool paused;
    bool wants_perf;              /* perf events beside the CPU clocks */
    uint64_t memory_stride_bytes; /* 0: memory is not looked at */
    uint64_t copy_stride_bytes;   /* 0: copies are not */
};

/* Puts it into this program's environment, for a child to inherit, and takes it out again. */
enum status preload_enter(const struct preload *preload) MUST_USE;
void preload_leave(void);

#endif

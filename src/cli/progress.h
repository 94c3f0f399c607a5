/* One line on a terminal that says what is going on, and goes when it is over. */
#ifndef STROBE_CLI_PROGRESS_H
#define STROBE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool wanted; /* and standard error is a terminal */
    bool shown;
    uint64_t start_ns;
    uint64_t next_ns;
    uint32_t processes; /* that live */
    uint32_t threads;
    uint64_t samples;
};

void progress_start(struct progress *progress, bool wanted);
/* Brings the line up to date, now and then. */
void progress_show(struct progress *progress, uint64_t now_ns);
/* Before anything else is written to the terminal, and at the end. */
void progress_clear(struct progress *progress);

#endif

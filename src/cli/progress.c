#include "cli/progress.h"

#include "base/clock.h"
#include "cli/reporting.h"

#include <stdio.h>
#include <unistd.h>

static const uint64_t PERIOD_NS = 500 * NS_PER_MS;

void progress_start(struct progress *progress, bool wanted) {
    uint64_t now_ns = clock_monotonic_ns();
    *progress =
        (struct progress){.wanted = wanted && isatty(STDERR_FILENO) == 1, .start_ns = now_ns, .next_ns = now_ns};
}

void progress_show(struct progress *progress, uint64_t now_ns) {
    char line[160];
    if (!progress->wanted || now_ns < progress->next_ns)
        return;
    progress->next_ns = now_ns + PERIOD_NS;
    int length = snprintf(line, sizeof line, "strobe: %.1f s, %u process%s, %u thread%s, %llu samples",
                          (double)(now_ns - progress->start_ns) / (double)NS_PER_S, progress->processes,
                          progress->processes == 1 ? "" : "es", progress->threads, progress->threads == 1 ? "" : "s",
                          (unsigned long long)progress->samples);
    size_t width = report_terminal_width(stderr);
    /* A line that is wrapped could not be taken back. */
    if (length > 0 && width > 1 && (size_t)length >= width)
        line[width - 1] = '\0';
    (void)fprintf(stderr, "\r%s\033[K", line);
    (void)fflush(stderr);
    progress->shown = true;
}

void progress_clear(struct progress *progress) {
    if (!progress->shown)
        return;
    (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
    progress->shown = false;
}

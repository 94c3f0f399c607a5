/* What `strobe doctor` finds, in parts. Each prints its findings, one to a line, to standard output. */
#ifndef STROBE_CLI_DOCTOR_H
#define STROBE_CLI_DOCTOR_H

#include "base/status.h"

#include <stdbool.h>
#include <sys/types.h>

enum finding {
    FINDING_WORKS,
    FINDING_MISSING, /* with what to do about it */
    FINDING_NOTE,    /* neither; to be known */
};

void doctor_section(const char *format, ...) __attribute__((format(printf, 1, 2)));
void doctor_find(enum finding finding, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What this machine allows. False: not even the user's own processes can be read. */
bool doctor_machine(void);
/* The library that is loaded into programs. */
void doctor_agent(void);
/* The Pythons on PATH. */
void doctor_interpreters(void);
/* Whether one process can be read, and what is special about it. The error as dump's would be. */
enum status doctor_process(pid_t pid, struct error *error) MUST_USE;

#endif

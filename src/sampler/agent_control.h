/* Telling the agent of a running process to sample or not to. */
#ifndef STROBE_SAMPLER_AGENT_CONTROL_H
#define STROBE_SAMPLER_AGENT_CONTROL_H

#include "base/status.h"
#include "wire/region.h"

#include <sys/types.h>

/* STATUS_NOT_FOUND when the process has no agent, or its strobe is gone; STATUS_NO_PROCESS and STATUS_PERMISSION as
 * process_open. */
enum status agent_control(pid_t pid, enum wire_control control, struct error *error) MUST_USE;

#endif

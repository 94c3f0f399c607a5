"""What a figure depends on besides the programs."""

import os
import platform


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def describe():
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    niceness = f", all measured at nice {priority}" if priority != 0 else ""
    return f"{processor()}, {cores} cores, Linux {platform.release()}; load average at the start {load:.1f}{niceness}"

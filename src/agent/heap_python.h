/* The allocators of Python's raw, mem and object domains, seen through PyMem_GetAllocator and PyMem_SetAllocator. */
#ifndef STROBE_AGENT_HEAP_PYTHON_H
#define STROBE_AGENT_HEAP_PYTHON_H

/* Once, before the interpreter starts. */
void heap_python_install(void);

#endif

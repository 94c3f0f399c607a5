/* C functions that do nothing, one for each way in which CPython calls C, and clocks for those that do something.
 * fine_mixes.py finds out with them what a call itself costs. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#if PY_VERSION_HEX < 0x03090000
#define PyObject_Vectorcall _PyObject_Vectorcall
#define Py_TPFLAGS_HAVE_VECTORCALL _Py_TPFLAGS_HAVE_VECTORCALL
#endif
#ifndef PY_VECTORCALL_ARGUMENTS_OFFSET
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
#endif

enum { BATCH = 32, ARGUMENTS_MAX = 8, LOOK_US = 1000 };

/* METH_VARARGS, METH_KEYWORDS, METH_NOARGS, METH_O, METH_FASTCALL and METH_METHOD. */
enum { CONVENTION_BITS = 0x28f };

typedef PyObject *fast_function(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *fast_keywords_function(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

static PyObject *nothing(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *call_o(PyObject *self, PyObject *argument) {
    (void)self;
    (void)argument;
    return nothing();
}

static PyObject *call_varargs(PyObject *self, PyObject *arguments) {
    (void)self;
    (void)arguments;
    return nothing();
}

static PyObject *call_keywords(PyObject *self, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    return call_varargs(self, arguments);
}

static PyObject *call_fast(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    (void)self;
    (void)arguments;
    (void)count;
    return nothing();
}

static PyObject *call_fast_keywords(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    (void)names;
    return call_fast(self, arguments, count);
}

/* As sum() does, it makes a number that is not one of those that exist already. */
static PyObject *call_number(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    (void)self;
    (void)arguments;
    (void)count;
    (void)names;
    return PyLong_FromLong(1770);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)type;
    (void)arguments;
    (void)keywords;
    return nothing();
}

static PyObject *make_fast(PyObject *type, PyObject *const *arguments, size_t count, PyObject *names) {
    (void)type;
    (void)arguments;
    (void)count;
    (void)names;
    return nothing();
}

/* The calling convention of a builtin: METH_… */
static PyObject *convention(PyObject *self, PyObject *function) {
    (void)self;
    if (!PyCFunction_Check(function))
        return PyLong_FromLong(-1);
    return PyLong_FromLong(PyCFunction_GetFlags(function) & 0x8f);
}

static PyObject *has_vectorcall(PyObject *self, PyObject *type) {
    (void)self;
    return PyBool_FromLong(PyType_Check(type) && ((PyTypeObject *)type)->tp_vectorcall != NULL);
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

struct call {
    PyObject *function;
    PyObject *arguments[1 + ARGUMENTS_MAX];
    size_t count;
    long times;
};

static void fill_call(struct call *call, PyObject *function, PyObject *tuple) {
    call->function = function;
    call->count = (size_t)PyTuple_GET_SIZE(tuple);
    for (size_t i = 0; i < call->count && i < ARGUMENTS_MAX; i++)
        call->arguments[i + 1] = PyTuple_GET_ITEM(tuple, (Py_ssize_t)i);
}

static int parse_call(PyObject *arguments, struct call *call) {
    PyObject *function, *tuple;
    if (!PyArg_ParseTuple(arguments, "OO!l", &function, &PyTuple_Type, &tuple, &call->times))
        return 0;
    fill_call(call, function, tuple);
    return 1;
}

static PyObject *run_call(struct call *call) {
    return PyObject_Vectorcall(call->function, call->arguments + 1, call->count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

static int compare(const void *left, const void *right) {
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* alone(function, arguments, times): nanoseconds of a call with nothing else going on, with what the clock costs; the
 * release of its result is not in it. The mean without the slowest tenth. */
static PyObject *alone(PyObject *self, PyObject *arguments) {
    (void)self;
    struct call call = {0};
    if (!parse_call(arguments, &call))
        return NULL;
    double *spent = malloc((size_t)call.times * sizeof *spent), sum = 0;
    long kept = call.times * 9 / 10;
    if (spent == NULL || kept == 0)
        return PyErr_NoMemory();
    for (long i = 0; i < call.times; i++) {
        double start = now_ns();
        PyObject *result = run_call(&call);
        spent[i] = now_ns() - start;
        if (result == NULL) {
            free(spent);
            return NULL;
        }
        Py_DECREF(result);
    }
    qsort(spent, (size_t)call.times, sizeof *spent, compare);
    for (long i = 0; i < kept; i++)
        sum += spent[i];
    free(spent);
    return PyFloat_FromDouble(sum / (double)kept);
}

/* released(function, arguments, times): nanoseconds that the release of a call's result takes, at the least. */
static PyObject *released(PyObject *self, PyObject *arguments) {
    (void)self;
    struct call call = {0};
    PyObject *results[BATCH];
    double least = 1e18;
    if (!parse_call(arguments, &call))
        return NULL;
    for (long i = 0; i < call.times; i++) {
        for (int k = 0; k < BATCH; k++) {
            results[k] = run_call(&call);
            if (results[k] == NULL)
                return NULL;
        }
        double start = now_ns();
        for (int k = 0; k < BATCH; k++)
            Py_DECREF(results[k]);
        double spent = (now_ns() - start) / BATCH;
        least = spent < least ? spent : least;
    }
    return PyFloat_FromDouble(least);
}

/* Enters the C code of a call as the evaluation loop does that knows what it calls, where that is known; `tuple` holds
 * the arguments for those that want one. */
static PyObject *enter(const struct call *call, PyObject *tuple) {
    PyObject *const *arguments = call->arguments + 1;
    if (PyType_Check(call->function) && ((PyTypeObject *)call->function)->tp_vectorcall != NULL)
        return ((PyTypeObject *)call->function)->tp_vectorcall(call->function, arguments, call->count, NULL);
    if (!PyCFunction_Check(call->function))
        return PyObject_Call(call->function, tuple, NULL);
    PyObject *self = PyCFunction_GET_SELF(call->function);
    void (*code)(void) = (void (*)(void))PyCFunction_GET_FUNCTION(call->function);
    switch (PyCFunction_GET_FLAGS(call->function) & CONVENTION_BITS) {
    case METH_O:
        return ((PyCFunction)code)(self, arguments[0]);
    case METH_NOARGS:
        return ((PyCFunction)code)(self, NULL);
    case METH_VARARGS:
        return ((PyCFunction)code)(self, tuple);
    case METH_FASTCALL:
        return ((fast_function *)code)(self, arguments, (Py_ssize_t)call->count);
    case METH_FASTCALL | METH_KEYWORDS:
        return ((fast_keywords_function *)code)(self, arguments, (Py_ssize_t)call->count, NULL);
    default:
        return PyObject_Call(call->function, tuple, NULL);
    }
}

/* marked(function, arguments): what makes that call, whatever it is given, and has a flag up meanwhile. */
struct marked {
    PyObject_HEAD vectorcallfunc vectorcall;
    struct call call;
    PyObject *tuple;
};

static volatile int flag_is_up;

static PyObject *call_marked(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names) {
    struct marked *marked = (struct marked *)self;
    (void)arguments;
    (void)count;
    (void)names;
    flag_is_up = 1;
    PyObject *result = enter(&marked->call, marked->tuple);
    flag_is_up = 0;
    return result;
}

/* They are never freed, nor is what they call. */
static PyObject *new_marked(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PyObject *function, *tuple;
    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "OO!", &function, &PyTuple_Type, &tuple))
        return NULL;
    struct marked *marked = (struct marked *)type->tp_alloc(type, 0);
    if (marked == NULL)
        return NULL;
    Py_INCREF(arguments);
    fill_call(&marked->call, function, tuple);
    marked->tuple = tuple;
    marked->vectorcall = call_marked;
    return (PyObject *)marked;
}

static volatile sig_atomic_t looks, looks_up;

static void look_at_flag(int signal_number) {
    (void)signal_number;
    looks++;
    looks_up += flag_is_up;
}

/* watched(function, …): calls it and returns how often the process's CPU clock struck meanwhile, and how often of these
 * the flag was up. */
static PyObject *watched(PyObject *self, PyObject *arguments) {
    (void)self;
    struct sigaction action = {.sa_handler = look_at_flag, .sa_flags = SA_RESTART};
    struct itimerval interval = {{0, LOOK_US}, {0, LOOK_US}}, none = {{0, 0}, {0, 0}};
    PyObject *rest = PyTuple_GetSlice(arguments, 1, PyTuple_GET_SIZE(arguments));
    if (rest == NULL)
        return NULL;
    looks = looks_up = 0;
    if (sigaction(SIGPROF, &action, NULL) != 0 || setitimer(ITIMER_PROF, &interval, NULL) != 0) {
        Py_DECREF(rest);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *result = PyObject_CallObject(PyTuple_GET_ITEM(arguments, 0), rest);
    setitimer(ITIMER_PROF, &none, NULL);
    Py_DECREF(rest);
    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    return Py_BuildValue("ii", (int)looks, (int)looks_up);
}

#define AS_FUNCTION(function) ((PyCFunction)(void (*)(void))(function))
#define CONVENTIONS                                                                                                    \
    {"o", call_o, METH_O, NULL}, {"noargs", call_o, METH_NOARGS, NULL}, {"varargs", call_varargs, METH_VARARGS, NULL}, \
        {"keywords", AS_FUNCTION(call_keywords), METH_VARARGS | METH_KEYWORDS, NULL},                                  \
        {"fast", AS_FUNCTION(call_fast), METH_FASTCALL, NULL}, {                                                       \
        "fast_keywords", AS_FUNCTION(call_fast_keywords), METH_FASTCALL | METH_KEYWORDS, NULL                          \
    }

static PyMethodDef methods[] = {CONVENTIONS, {NULL, NULL, 0, NULL}};
static PyMethodDef functions[] = {
    CONVENTIONS,
    {"number", AS_FUNCTION(call_number), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"convention", convention, METH_O, NULL},
    {"has_vectorcall", has_vectorcall, METH_O, NULL},
    {"alone", alone, METH_VARARGS, NULL},
    {"released", released, METH_VARARGS, NULL},
    {"watched", watched, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject object_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_calls.Object",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_new = PyType_GenericNew,
};
static PyTypeObject made_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_calls.Made",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
};
static PyTypeObject made_fast_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_calls.MadeFast",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
    .tp_vectorcall = make_fast,
};
static PyTypeObject marked_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_calls.Marked",
    .tp_basicsize = sizeof(struct marked),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(struct marked, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = new_marked,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "empty_calls", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_empty_calls(void) {
    PyTypeObject *const types[] = {&object_type, &made_type, &made_fast_type, &marked_type};
    static const char *const names[] = {"Object", "Made", "MadeFast", "Marked"};
    PyObject *module = PyModule_Create(&definition);
    for (int i = 0; i < 4; i++) {
        if (module == NULL || PyType_Ready(types[i]) < 0)
            return NULL;
        Py_INCREF(types[i]);
        if (PyModule_AddObject(module, names[i], (PyObject *)types[i]) < 0)
            return NULL;
    }
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}

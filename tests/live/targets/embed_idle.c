/* A program whose first thread has been Python, and waits now with no Python function on its stack.
 *
 * usage: embed_idle SCRIPT */
#include <stdio.h>
#include <unistd.h>

void Py_InitializeEx(int handlers);
int PyRun_SimpleStringFlags(const char *text, void *flags);
void *PyEval_SaveThread(void);

int main(int argc, char **argv) {
    char text[4096];
    if (argc < 2)
        return 2;
    snprintf(text, sizeof text, "__file__ = '''%s'''\nexec(compile(open(__file__).read(), __file__, 'exec'))", argv[1]);
    Py_InitializeEx(0);
    if (PyRun_SimpleStringFlags(text, 0) != 0)
        return 1;
    PyEval_SaveThread();
    pause();
    return 0;
}

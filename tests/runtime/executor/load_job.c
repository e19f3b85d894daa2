/* Starts a job as Python loads an extension module: what it needs is visible to nobody else. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *module = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*job)(void);
    if (module == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    *(void **)&job = dlsym(module, "job");
    return job();
}

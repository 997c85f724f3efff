/* A stand-in for the NVIDIA driver's libnvidia-ml.so.1: NVML's names and structs, values from a text file.
 *
 * $FAKE_NVML_FILE is read again at every call, so a test changes a running program by rewriting it:
 *     driver 550.54.14            cuda 12040
 *     count 1                     0.total 25769803776      0.free 20000000000     0.name NVIDIA Stand-in
 *     0.uuid GPU-...              0.utilisation 37         0.power 120000         0.power_limit 350000
 *     0.power_default 350000      0.temperature 61         0.reasons 4            0.pstate 2
 *     0.processes 4242:1073741824,4243:-1                  (-1: the driver does not say)
 *     err.nvmlDeviceGetPowerUsage 3     (that call returns this code)       0.lost 1     (the GPU is gone)
 *     hang.nvmlDeviceGetMemoryInfo 1    (that call does not return as long as this stands there)
 * A value that is missing is answered with NVML_ERROR_NOT_SUPPORTED. Every call is appended to $FAKE_NVML_LOG.
 * With -DMISSING_SYMBOLS it is an older driver, without the calls that came last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, LOST = 15, MISMATCH = 18 };
enum { MOST_GPUS = 16 };

typedef struct gpu { int index; } gpu;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned int gpu, memory; } utilisation;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; } process;

static gpu gpus[MOST_GPUS];
static int started;

static int value(const char *key, char *out, size_t size) {
    const char *path = getenv("FAKE_NVML_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096];
    int found = 0;
    size_t length = strlen(key);
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(out, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static int number_of(const char *key, unsigned long long *out) {
    char text[64];
    if (!value(key, text, sizeof text)) return 0;
    *out = strtoull(text, NULL, 10);
    return 1;
}

static int of_gpu(const gpu *device, const char *name, char *out, size_t size) {
    char key[128];
    snprintf(key, sizeof key, "%d.%s", device->index, name);
    return value(key, out, size);
}

/* What a call answers before it looks at its value. */
static int begin(const char *symbol, const gpu *device) {
    const char *log = getenv("FAKE_NVML_LOG");
    char key[128], text[64];
    unsigned long long code;
    FILE *file = log ? fopen(log, "a") : NULL;
    if (file) { fprintf(file, "%s\n", symbol); fclose(file); }
    snprintf(key, sizeof key, "hang.%s", symbol);
    while (number_of(key, &code)) usleep(10000);
    snprintf(key, sizeof key, "err.%s", symbol);
    if (number_of(key, &code)) return (int)code;
    if (!started && strcmp(symbol, "nvmlInitWithFlags")) return UNINITIALIZED;
    if (device && of_gpu(device, "lost", text, sizeof text) && atoi(text)) return LOST;
    return SUCCESS;
}

static int answer(const char *symbol, const gpu *device, const char *name, unsigned long long *out) {
    char text[64];
    int code = begin(symbol, device);
    if (code != SUCCESS) return code;
    if (!of_gpu(device, name, text, sizeof text)) return NOT_SUPPORTED;
    *out = strtoull(text, NULL, 10);
    return SUCCESS;
}

static int answer_int(const char *symbol, const gpu *device, const char *name, unsigned int *out) {
    unsigned long long wide;
    int code = answer(symbol, device, name, &wide);
    if (code == SUCCESS) *out = (unsigned int)wide;
    return code;
}

static int answer_text(const char *symbol, const gpu *device, const char *name, char *out, unsigned int size) {
    int code = begin(symbol, device);
    if (code != SUCCESS) return code;
    return of_gpu(device, name, out, size) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlInitWithFlags(unsigned int flags) {
    int code = begin("nvmlInitWithFlags", NULL);
    (void)flags;
    for (int at = 0; at < MOST_GPUS; at++) gpus[at].index = at;
    if (code == SUCCESS) started++;
    return code;
}

int nvmlShutdown(void) {
    int code = begin("nvmlShutdown", NULL);
    if (started > 0) started--; /* counted, as the driver does */
    return code;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_DRIVER: return "Driver Not Loaded";
    case MISMATCH: return "Driver/library version mismatch";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size) {
    int code = begin("nvmlSystemGetDriverVersion", NULL);
    if (code != SUCCESS) return code;
    return value("driver", version, size) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    unsigned long long wide;
    int code = begin("nvmlSystemGetCudaDriverVersion", NULL);
    if (code != SUCCESS) return code;
    if (!number_of("cuda", &wide)) return NOT_SUPPORTED;
    *version = (int)wide;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    unsigned long long wide = 0;
    int code = begin("nvmlDeviceGetCount_v2", NULL);
    if (code == SUCCESS) { number_of("count", &wide); *count = (unsigned int)wide; }
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, gpu **device) {
    unsigned long long count = 0;
    int code = begin("nvmlDeviceGetHandleByIndex_v2", NULL);
    if (code != SUCCESS) return code;
    number_of("count", &count);
    if (index >= count || index >= MOST_GPUS) return INVALID;
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(gpu *device, char *name, unsigned int size) {
    return answer_text("nvmlDeviceGetName", device, "name", name, size);
}

int nvmlDeviceGetUUID(gpu *device, char *uuid, unsigned int size) {
    return answer_text("nvmlDeviceGetUUID", device, "uuid", uuid, size);
}

int nvmlDeviceGetMemoryInfo(gpu *device, memory *out) {
    unsigned long long total, left;
    int code = answer("nvmlDeviceGetMemoryInfo", device, "total", &total);
    if (code == SUCCESS) code = answer("nvmlDeviceGetMemoryInfo", device, "free", &left);
    if (code == SUCCESS) { out->total = total; out->free = left; out->used = total - left; }
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(gpu *device, memory_v2 *out) {
    memory plain;
    int code = nvmlDeviceGetMemoryInfo(device, &plain);
    if (code == SUCCESS) { out->total = plain.total; out->free = plain.free; out->used = plain.used; out->reserved = 0; }
    return code;
}

int nvmlDeviceGetUtilizationRates(gpu *device, utilisation *out) {
    out->memory = 0;
    return answer_int("nvmlDeviceGetUtilizationRates", device, "utilisation", &out->gpu);
}

int nvmlDeviceGetPowerUsage(gpu *device, unsigned int *out) {
    return answer_int("nvmlDeviceGetPowerUsage", device, "power", out);
}

int nvmlDeviceGetEnforcedPowerLimit(gpu *device, unsigned int *out) {
    return answer_int("nvmlDeviceGetEnforcedPowerLimit", device, "power_limit", out);
}

int nvmlDeviceGetPowerManagementDefaultLimit(gpu *device, unsigned int *out) {
    return answer_int("nvmlDeviceGetPowerManagementDefaultLimit", device, "power_default", out);
}

int nvmlDeviceGetTemperature(gpu *device, int sensor, unsigned int *out) {
    (void)sensor;
    return answer_int("nvmlDeviceGetTemperature", device, "temperature", out);
}

int nvmlDeviceGetPowerState(gpu *device, unsigned int *out) {
    return answer_int("nvmlDeviceGetPowerState", device, "pstate", out);
}

#ifndef MISSING_SYMBOLS
int nvmlDeviceGetCurrentClocksEventReasons(gpu *device, unsigned long long *out) {
    return answer("nvmlDeviceGetCurrentClocksEventReasons", device, "reasons", out);
}

int nvmlDeviceGetComputeRunningProcesses_v3(gpu *device, unsigned int *count, process *out) {
    char text[4096] = "", *rest = text, *entry;
    unsigned int needed = 0, room = *count;
    int code = begin("nvmlDeviceGetComputeRunningProcesses_v3", device);
    if (code != SUCCESS) return code;
    of_gpu(device, "processes", text, sizeof text);
    while ((entry = strsep(&rest, ",")) != NULL) {
        char *size = strchr(entry, ':');
        if (!size) continue;
        if (out && needed < room) {
            out[needed].pid = (unsigned int)strtoul(entry, NULL, 10);
            out[needed].used = strcmp(size + 1, "-1") ? strtoull(size + 1, NULL, 10) : ~0ULL;
        }
        needed++;
    }
    *count = needed;
    return needed > room ? TOO_SMALL : SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(gpu *device, unsigned int *count, process *out) {
    int code = begin("nvmlDeviceGetGraphicsRunningProcesses_v3", device);
    (void)out;
    if (code == SUCCESS) *count = 0;
    return code;
}
#endif

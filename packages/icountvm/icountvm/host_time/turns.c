// SPDX-License-Identifier: MIT
//
// The time of day (host_time.c), and turns, for a QEMU with several processors.
//
// QEMU's processors share a thread. At each timer it wakes the main loop, which runs beside it and
// moves the clock on if every processor is halted (icount_start_warp_timer in
// accel/tcg/icount-common.c). It may see a processor halt before its last instructions are counted.
// QEMU can record one processor, which prevents that, but not several.
//
// So the main loop's events wait here until the processors' thread waits, or is woken by the main
// loop itself. They do what they would have done if the main loop had been slow. QEMU's monitor
// must be answered while processors never halt: the main loop goes on after a second.
//
// If a guest asks for a stop (its panic, qemu_system_guest_panicked in system/runstate.c), the main
// loop must begin to stop the machine before the processor counts as stopped: all would be idle, and
// it would move the clock on. So the processors' thread waits, before it takes QEMU's lock again,
// until the main loop waits for it (pause_all_vcpus in system/cpus.c). It knows such a stop by the
// event that it sends to the monitor.

#include "host_time.c"

#define NEXT ((void *)-1L)
#define SECONDS 1
#define STOP_SECONDS 60
#define SYS_getpid 39
#define SYS_gettid 186
#define SYS_futex 202
#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129
#define ETIMEDOUT 110

void *dlsym(void *handle, const char *name);

// Whether the processors' thread waits, and for which condition; which thread that is.
static int waits;
static void *condition, *processors;
// QEMU's lock, and the thread that has it.
static void *lock, *owner;
// Whether that thread sent an event, and whether the main loop waits for processors to stop.
static int stop_asked, stop_begun;

static long call(long number, long first, long second, long third, long fourth)
{
	long result;

	__asm__ volatile("movq %5, %%r10; syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third), "g"(fourth)
			 : "rcx", "r10", "r11", "memory");
	return result;
}

static int is_main_thread(void)
{
	return call(SYS_gettid, 0, 0, 0, 0) == call(SYS_getpid, 0, 0, 0, 0);
}

static void set(int *flag, int value)
{
	__asm__ volatile("xchgl %0, %1" : "+r"(value), "+m"(*flag) : : "memory");
}

static void set_and_wake(int *flag)
{
	set(flag, 1);
	call(SYS_futex, (long)flag, FUTEX_WAKE_PRIVATE, 1, 0);
}

// Wait until a flag is set, for `seconds` at most. No return in the loop: tcc 0.9.27 drops it.
static void wait_for(int *flag, long seconds)
{
	long limit[2] = {seconds, 0};

	while (!*(volatile int *)flag)
		if (call(SYS_futex, (long)flag, FUTEX_WAIT_PRIVATE, 0, (long)limit) == -ETIMEDOUT)
			break;
}

// Of all threads but the main one, only that of the processors waits so.
int pthread_cond_wait(void *on, void *mutex)
{
	static int (*next)(void *, void *);
	int other = !is_main_thread(), result;

	if (!next)
		next = dlsym(NEXT, "pthread_cond_wait");
	if (other) {
		condition = on;
		lock = mutex;
		processors = __errno_location();
		set_and_wake(&waits);
	} else if (mutex == lock) {
		set_and_wake(&stop_begun);
	}
	if (mutex == lock)
		owner = 0;
	result = next(on, mutex);
	if (mutex == lock)
		owner = __errno_location();
	if (other)
		set(&waits, 0);
	return result;
}

int pthread_cond_broadcast(void *of)
{
	static int (*next)(void *);

	if (!next)
		next = dlsym(NEXT, "pthread_cond_broadcast");
	// It runs from now on, not from when it holds its mutex.
	if (of == condition)
		set(&waits, 0);
	return next(of);
}

long sendmsg(int socket, const void *message, int flags)
{
	static long (*next)(int, const void *, int);

	if (!next)
		next = dlsym(NEXT, "sendmsg");
	if (processors && processors == __errno_location()) {
		set(&stop_begun, 0);
		stop_asked = 1;
	}
	return next(socket, message, flags);
}

int pthread_mutex_lock(void *mutex)
{
	static int (*next)(void *);
	int result;

	if (!next)
		next = dlsym(NEXT, "pthread_mutex_lock");
	if (stop_asked && mutex == lock && processors == __errno_location()) {
		stop_asked = 0;
		set_and_wake(&waits);
		wait_for(&stop_begun, STOP_SECONDS);
		set(&waits, 0);
	}
	result = next(mutex);
	if (mutex == lock)
		owner = __errno_location();
	return result;
}

int pthread_mutex_unlock(void *mutex)
{
	static int (*next)(void *);

	if (!next)
		next = dlsym(NEXT, "pthread_mutex_unlock");
	if (mutex == lock)
		owner = 0;
	return next(mutex);
}

// With a limit of 0 the main loop has work of its own. With QEMU's lock it would wait in vain: the
// processors' thread may need that before it waits (run_on_cpu, in each snapshot).
int ppoll(void *files, unsigned long number, const long *limit, const void *signals)
{
	static int (*next)(void *, unsigned long, const long *, const void *);
	int busy = limit && !limit[0] && !limit[1], result;

	if (!next)
		next = dlsym(NEXT, "ppoll");
	result = next(files, number, limit, signals);
	// There is no condition before there are processors.
	if (condition && !busy && owner != __errno_location() && is_main_thread())
		wait_for(&waits, SECONDS);
	return result;
}

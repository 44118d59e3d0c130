/* First process of every Pod sandbox: it holds the namespaces open and reaps orphans. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int sig)
{
	(void)sig;
	_exit(0);
}

static void reap(int sig)
{
	(void)sig;
	while (waitpid(-1, 0, WNOHANG) > 0)
		;
}

int main(void)
{
	signal(SIGTERM, leave);
	signal(SIGINT, leave);
	signal(SIGCHLD, reap);
	for (;;)
		pause();
}

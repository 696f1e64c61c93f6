#include "daemon/request/port.h"

#include <stdarg.h>
#include <stdio.h>

bool port_is_dead(const struct port *port)
{
	return port->ops->is_dead && port->ops->is_dead(port);
}

bool port_has_room(const struct port *port)
{
	return !port->ops->has_room || port->ops->has_room(port);
}

void port_reply_fds(struct port *port, uint32_t request, Tierd__Wire__Reply *body, const int *fds,
		    unsigned fd_count)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__Reply empty = TIERD__WIRE__REPLY__INIT;

	if (!body)
		body = &empty;
	body->status = &status;
	port->ops->reply(port, request, body, fds, fd_count);
	body->status = NULL;
}

void port_note_farewell(struct port *port, uint32_t handle, const char *reason)
{
	struct farewell *farewell = &port->farewells[port->farewell_count++ % PORT_FAREWELLS];

	farewell->handle = handle;
	snprintf(farewell->reason, sizeof(farewell->reason), "%s", reason);
}

const char *port_find_farewell(const struct port *port, uint32_t handle)
{
	for (unsigned i = 0; i < PORT_FAREWELLS && handle > 0; i++)
		if (port->farewells[i].handle == handle)
			return port->farewells[i].reason;
	return NULL;
}

void port_reply(struct port *port, uint32_t request, Tierd__Wire__Reply *body)
{
	port_reply_fds(port, request, body, NULL, 0);
}

void port_reply_error(struct port *port, uint32_t request, int r, const char *format, ...)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	char message[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	status.code = status_from_errno(r);
	status.message = message;
	reply.status = &status;
	port->ops->reply(port, request, &reply, NULL, 0);
}

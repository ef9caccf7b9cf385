// Addresses are relative to the page, so that they hold behind a proxy that adds a path prefix.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  persistAuthorization: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  // Without this, the document would be sent to validator.swagger.io.
  validatorUrl: null,
});

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

/** The same as host.cpp, through JDBC: java -cp duckdb_jdbc.jar Host.java FILE. */
class Host {
    static String rows(ResultSet result) throws SQLException {
        StringBuilder text = new StringBuilder();
        while (result.next()) {
            for (int column = 1; column <= result.getMetaData().getColumnCount(); column++) {
                text.append(text.length() == 0 ? "" : " ").append(result.getString(column));
            }
        }
        return text.length() == 0 ? "ok" : text.toString();
    }

    static String run(Connection connection, String sql) {
        try (Statement statement = connection.createStatement()) {
            return statement.execute(sql) ? rows(statement.getResultSet()) : "ok";
        } catch (SQLException error) {
            return "error: " + error.getMessage().replace('\n', ' ');
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("allow_unsigned_extensions", "true");
        try (Connection connection = DriverManager.getConnection("jdbc:duckdb:", settings)) {
            for (String statement : Files.readAllLines(Path.of(arguments[0]))) {
                System.out.println(run(connection, statement));
            }
        }
    }
}
